"""What builds the documentation: checks of the public names, the example notebook, hooks of the site."""
