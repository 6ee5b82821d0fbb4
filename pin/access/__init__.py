"""Who calls, and with what we call."""
