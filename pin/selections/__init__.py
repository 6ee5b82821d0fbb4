"""The context selections: snapshots and what may become of them."""
