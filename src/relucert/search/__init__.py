"""The radius search and its predictions."""
