"""The whole stack under a steady load while a seeded schedule of faults runs over it: `python -m tests.chaos`."""
