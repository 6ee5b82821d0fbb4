"""The retry job: one tick, one batch."""
