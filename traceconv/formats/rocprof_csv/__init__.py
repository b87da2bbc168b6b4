"""Tables of rocprofv3 (CSV): the files of a process are one recording."""
