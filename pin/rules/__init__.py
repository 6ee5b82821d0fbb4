"""Pure decisions and the contract: no I/O, no framework."""
