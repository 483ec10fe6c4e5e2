"""Files on disk: stores of answers, atomic writing, and the location of the user's cache."""
