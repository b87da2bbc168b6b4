"""Reader of speedscope's own files."""
