"""Helpers that every room uses: checks of arguments, tensors in slices."""
