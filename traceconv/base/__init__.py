"""Used by every other package: errors, the import log, integers, compression. Imports no other package of traceconv."""
