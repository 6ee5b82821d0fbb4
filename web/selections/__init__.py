"""Routes of the context selections."""
