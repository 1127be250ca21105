"""The command line: one module a command. The only package that uses typer and rich."""

from volmin.cli.app import app, main

__all__ = ["app", "main"]
