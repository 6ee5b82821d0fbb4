"""`python -m pin.cli`, the same as `pin`."""

from pin.cli import main

main()
