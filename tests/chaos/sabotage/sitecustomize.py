"""Loaded by Python at the start of a process that has this folder on its PYTHONPATH."""

from tests.chaos.breaking import break_product

break_product()
