"""What several formats share: opening and decompressing files, limits, JSON documents, identity."""
