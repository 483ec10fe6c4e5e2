"""The public calls, one module each."""
