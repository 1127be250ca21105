"""Interfaces of other packages and tools: cleanlab's functions, and tasks of Label Studio."""
