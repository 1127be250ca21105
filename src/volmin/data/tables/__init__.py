"""Tables: reading files, and encoding columns as numbers."""
