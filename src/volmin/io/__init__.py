"""Files on disk: atomic writes, checksums, locks, NumPy arrays."""
