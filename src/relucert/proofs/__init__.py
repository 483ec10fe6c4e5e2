"""Files that prove an answer: everything that writes them."""
