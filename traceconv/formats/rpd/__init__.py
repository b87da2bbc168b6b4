"""Databases of rocmProfileData (rpd_tracer)."""
