"""What every other package may use: errors, the import log, integers, compression. Imports nothing of ours."""
