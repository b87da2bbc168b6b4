"""What everything else may use: errors, the import log, integers, files of the cache. Imports nothing of ours."""
