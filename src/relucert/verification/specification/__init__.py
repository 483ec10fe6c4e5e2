"""Specifications: what would violate a property, in exact numbers, and the files of the field that say so."""
