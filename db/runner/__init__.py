"""The runner: its lock, its gate, the pause."""
