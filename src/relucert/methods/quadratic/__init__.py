"""Quadratic certificates: the dual of the semidefinite relaxation, found in float32 and proven in float64."""
