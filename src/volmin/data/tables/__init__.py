"""Tables: reading files, reading labels, and encoding columns as numbers."""

from volmin.data.tables.encoder import TableEncoder, describe_uses
from volmin.data.tables.files import SUFFIXES, read_cells, read_table
from volmin.data.tables.frames import as_frame
from volmin.data.tables.labels import LabelledTable, check_column, column_labels, load_table
from volmin.data.tables.leaks import LabelLeak, label_leaks
from volmin.data.tables.recognition import TYPES, ColumnUse

__all__ = [
    "SUFFIXES",
    "TYPES",
    "ColumnUse",
    "LabelLeak",
    "LabelledTable",
    "TableEncoder",
    "as_frame",
    "check_column",
    "column_labels",
    "describe_uses",
    "label_leaks",
    "load_table",
    "read_cells",
    "read_table",
]
