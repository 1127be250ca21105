"""Runs the command line: ``python -m volmin``."""

from volmin.cli import main

main()
