"""What framework operators compute and move, from the shapes and types of their arguments."""
