"""The local stack: the embedded PostgreSQL and the product's processes, under one supervisor."""
