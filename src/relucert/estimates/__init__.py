"""CLEVER: an estimate, never a certificate, of how far an input can move."""
