"""Networks, images and files that come from outside."""
