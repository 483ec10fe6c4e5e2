"""All methods side by side on the same images, and the order that their answers must keep."""
