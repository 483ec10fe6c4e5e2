"""The answers that users get."""
