"""The descriptions of trainings: architectures, recipes, and the plans for the networks of the zoo."""
