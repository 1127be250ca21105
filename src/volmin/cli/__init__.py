"""The command line, one module per command. The only package that imports typer and rich.

Modules of commands import everything else inside their functions, so that ``volmin --help`` stays fast.
"""

from volmin.cli.app import app, main

__all__ = ["app", "main"]
