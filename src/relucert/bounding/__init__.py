"""Bounds of neurons and margins over a ball: drivers, relaxers and the methods made of them."""
