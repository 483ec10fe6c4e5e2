"""What determines a training: architectures, recipes, and the plans for the networks of the zoo."""
