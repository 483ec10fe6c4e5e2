"""Branch and bound over the signs of ReLUs: the exact minimum distortion, and its proof."""
