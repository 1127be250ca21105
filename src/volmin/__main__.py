"""``python -m volmin`` is the command line."""

from volmin.cli import main

main()
