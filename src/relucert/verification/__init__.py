"""Given properties: do they hold on a region of inputs? Proven, a violation that anyone can replay, or unknown."""
