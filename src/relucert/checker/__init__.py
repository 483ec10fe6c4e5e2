"""The check of proofs, in arithmetic and code of its own."""
