"""Images in files and folders."""
