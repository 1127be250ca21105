"""Tables: reading files, reading labels, and encoding columns as numbers."""

from volmin.data.tables.encoder import TableEncoder, as_frame
from volmin.data.tables.files import SUFFIXES, read_cells, read_table
from volmin.data.tables.labels import LabelledTable, check_column, column_labels, load_table

__all__ = [
    "SUFFIXES",
    "LabelledTable",
    "TableEncoder",
    "as_frame",
    "check_column",
    "column_labels",
    "load_table",
    "read_cells",
    "read_table",
]
