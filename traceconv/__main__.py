"""`python -m traceconv`: the same as the program `traceconv`."""

from traceconv.cli.app import main

main()
