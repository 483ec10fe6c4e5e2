"""Bound propagation: bounds of neurons and margins over a region, by drivers and linear relaxations."""

import torch

# The C library gives freed memory back to the system, and takes it anew page by page, unless memory as large as the
# largest that it may give back has been freed before. Nothing is written to it: it takes no memory.
torch.empty(2**25 - 2**16, dtype=torch.uint8)
