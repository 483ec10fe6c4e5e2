"""Attacks: adversarial examples, the upper bounds beside certified radii."""
