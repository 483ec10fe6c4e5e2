"""Branch and bound by ReLU splitting and by input splitting: proofs for regions, and the exact minimum distortion."""
