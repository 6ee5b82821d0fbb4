"""The stack on several hosts, which are network namespaces, and links between them that are cut and mended."""
