"""Settings, what can be wrong with them, spans of time."""
