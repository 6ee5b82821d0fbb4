"""What people and gauges read."""
