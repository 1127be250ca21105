"""Options about the columns of a table, and what became of them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from volmin.exceptions import InputError

MOST_LINES = 40
"""Number of lines about columns that are printed."""


def column_types(types: Sequence[str] | None, text: Sequence[str] | None) -> dict[str, str]:
    """Types by column, from the options ``--types COLUMN=TYPE`` and ``--text COLUMN``."""
    found = dict.fromkeys(text or (), "text")
    for given in types or ():
        name, equals, type_ = given.rpartition("=")
        if not equals or not name:
            raise InputError(f"--types takes COLUMN=TYPE, e.g. --types postcode=category, but got {given!r}.")
        found[name] = type_.strip()
    return found


def show_columns(columns: Sequence[Mapping[str, Any]]) -> None:
    """Print what became of each column of a table."""
    from volmin.cli.terminal import say
    from volmin.data.tables import ColumnUse, describe_uses

    if not columns:
        return
    uses = [ColumnUse(**column) for column in columns]
    used = [use for use in uses if use.features]
    lines = describe_uses(uses)
    features = sum(use.features for use in used)
    say(f"Columns: {len(used)} of {len(uses)} used, {features:,} features (change with --types COLUMN=TYPE).")
    width = min(24, max(len(name) for name, *_ in lines))
    for name, kind, note in lines[:MOST_LINES]:
        if len(name) > width:  # on a line of its own, since it may be what --types needs
            say(f"  {name}")
        start = f"  {name if len(name) <= width else '':<{width}}  {kind:<8}  "
        room = max(20, min(100, shutil.get_terminal_size().columns) - len(start))
        first, *rest = textwrap.wrap(note, room) or [""]
        say("\n".join([(start + first).rstrip(), *(" " * len(start) + line for line in rest)]))
    if len(lines) > MOST_LINES:
        say(f"  … and {len(lines) - MOST_LINES} more lines in audit.json")
    say("")
