"""The single source of truth: one TOML file per raw record type and per store table."""
