"""Training: the paper's networks and one's own, defended and undefended."""
