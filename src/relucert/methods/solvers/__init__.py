"""Programs over the triangle relaxation: solvers propose slopes, the backward driver proves what they are worth."""
