"""Rounding, norms, regions and properties."""
