"""What is measured, against what, on which generated input."""
