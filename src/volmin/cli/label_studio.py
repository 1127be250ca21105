"""``volmin audit --label-studio``: the flagged rows as tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volmin import Audit

LOCAL_FILES = "/data/local-files/?d="
"""Address at which Label Studio serves files of its host."""


def write_label_studio(found: Audit, examples: Any, names: Sequence[str] | None, path: Path, fdr: float | None) -> None:
    """Write the tasks, and the labelling configuration beside them; ``examples`` is a table or pixels of images."""
    import polars as pl

    from volmin.cli.terminal import say
    from volmin.compat.label_studio import write_tasks
    from volmin.exceptions import InputError
    from volmin.io.atomic import write_text

    if isinstance(examples, pl.DataFrame):
        config = write_tasks(path, found, examples, fdr=fdr)
    elif examples is not None and names is not None:
        config = write_tasks(path, found, images=[f"{LOCAL_FILES}{name}" for name in names], fdr=fdr)
    else:
        raise InputError("--label-studio needs columns or images to show besides the labels.")
    write_text(path.with_suffix(".xml"), config)
    say(
        f"Tasks for Label Studio: {path}; labelling configuration: {path.with_suffix('.xml')}. Export the annotations"
        " as JSON and give them to --apply."
    )
