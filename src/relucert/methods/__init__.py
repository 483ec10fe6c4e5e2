"""Methods, as the radius search sees them, and the table of all of them."""
