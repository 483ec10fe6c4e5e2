"""Bound propagation: bounds of neurons and margins over a region, by drivers and linear relaxations."""
