"""The statements of the outbox's entries."""
