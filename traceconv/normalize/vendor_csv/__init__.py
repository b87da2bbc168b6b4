"""The columns of vendors' CSV files, and their cells as exact values."""
