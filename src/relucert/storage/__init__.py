"""Files on disk: written whole or not at all, and where caches are."""
