"""What the columns of vendors' CSV files mean, and their cells as exact values."""
