"""The exact minimum distortion: branch and bound over the signs of ReLUs, and its proof."""

FORMAT = "relucert proof 1"  # what a proof's file says it is
