"""MegEngine's profiles of static graphs (JSON of get_profile())."""
