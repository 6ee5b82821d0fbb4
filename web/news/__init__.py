"""Routes of the context news."""
