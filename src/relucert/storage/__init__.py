"""Files on disk: atomic writing, and the location of the user's cache."""
