"""The exact minimum distortion: branch and bound over the signs of ReLUs, and its proof."""
