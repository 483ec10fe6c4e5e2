"""What determines a training: architectures, recipes, and the plans of the zoo."""
