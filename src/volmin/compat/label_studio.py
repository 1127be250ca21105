"""Label Studio: tasks of a project in as a table, flagged rows out as tasks, annotations in as decisions.

A task holds the cells of its row and, as a prediction, the suggested label with the probability that the given one is
wrong as its score; tasks are sorted by it. Label Studio's JSON export and its shorter JSON-MIN are read back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from volmin.auditing.result import AuditResult
from volmin.data.tables import as_frame
from volmin.exceptions import DataError, InputError
from volmin.io.atomic import write_text
from volmin.io.spreadsheets import spreadsheet_safe

CHOICE = "label"
"""Name of the choice in the labelling configuration."""

ROW, GIVEN, SUGGESTED = "volmin_row", "volmin_given", "volmin_suggested"
"""Fields of a task's data that lead back to the audit."""


def tasks(
    audit: AuditResult,
    examples: Any = None,
    *,
    images: Sequence[str] | None = None,
    show: str | None = None,
    fdr: float | None = None,
    choice: str = CHOICE,
) -> list[dict[str, Any]]:
    """Tasks of the flagged rows, the most suspicious first.

    Args:
        audit: Result of an audit.
        examples: Table of all rows, whose cells are shown.
        images: (N,) addresses of images as Label Studio finds them, such as ``/data/local-files/?d=cat/1.jpg``.
        show: Column that is annotated, ``image`` for images; by default the one with the longest texts.
        fdr: Largest expected share of correct labels among the flagged, as in ``Audit.issues``.
        choice: Name of the choice in the labelling configuration; that of an existing project, to return to it.
    """
    frame = pl.DataFrame() if examples is None else as_frame(examples)
    if frame is None or (frame.width and frame.height != len(audit)):
        raise InputError(f"examples must be a table with a row for each of the {len(audit)} labels.")
    if images is not None:
        if len(images) != len(audit):
            raise InputError(f"images must name an image for each of the {len(audit)} labels, not {len(images)}.")
        frame = pl.DataFrame([*frame.get_columns(), pl.Series("image", list(images), dtype=pl.String)])
    if not frame.width:
        raise InputError("Give examples or images: a task must show something to annotate.")
    shown = show or ("image" if images is not None else shown_column(frame))
    if shown not in frame.columns:
        raise InputError(f"There is no column {shown!r} to show; choose one of {', '.join(frame.columns[:20])}.")
    rows = audit.issues(fdr)
    wrong = 1 - audit.quality[rows]
    order = (-wrong).argsort(kind="stable")
    cells = frame.select(pl.all().map_batches(_plain))
    return [
        _task(
            cells.row(int(row), named=True)
            | {ROW: int(row), GIVEN: str(audit.labels[row]), SUGGESTED: str(audit.suggested[row])},
            round(float(score), 4),
            shown,
            choice,
        )
        for row, score in zip(rows[order], wrong[order], strict=True)
    ]


def write_tasks(path: str | Path, audit: AuditResult, examples: Any = None, **options: Any) -> str:
    """Write the tasks as a JSON file to import, and return the labelling configuration for the project.

    Args:
        path: File to write.
        audit: Result of an audit.
        examples: Table of all rows, as in ``tasks``.
        options: Further arguments of ``tasks``.
    """
    found = tasks(audit, examples, **options)
    write_text(Path(path), json.dumps(found, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    shown = found[0]["predictions"][0]["result"][0]["to_name"] if found else "text"
    return configuration([str(name) for name in audit.classes], shown, options.get("choice", CHOICE))


def configuration(classes: Sequence[str], shown: str, choice: str = CHOICE) -> str:
    """The labelling configuration (XML) of a project for these tasks."""
    tag = "Image" if shown == "image" else "Text"
    choices = "\n".join(f'    <Choice value="{escape(name)}"/>' for name in classes)
    name = escape(shown)
    return (
        f'<View>\n  <{tag} name="{name}" value="${name}"/>\n  <Header value="Given: ${GIVEN}"/>\n'
        f'  <Choices name="{escape(choice)}" toName="{name}" choice="single">\n{choices}\n  </Choices>\n</View>\n'
    )


def shown_column(frame: pl.DataFrame) -> str:
    """The column of longest texts, or the first one if there is no text."""
    texts = [name for name in frame.columns if frame[name].dtype == pl.String]
    lengths = {name: frame[name].str.len_chars().mean() or 0 for name in texts}
    return max(texts, key=lambda name: lengths[name], default=frame.columns[0])


def read_tasks(path: str | Path, label: str = "label", choice: str | None = None) -> pl.DataFrame:
    """The tasks of a project as a table, to audit: the data of each task, and its label.

    The label is the single choice of the annotations; it is null for tasks that have none, that everybody skipped, or
    about which annotators differ.

    Args:
        path: File exported as JSON, or tasks in the form in which they are imported.
        label: Name of the column of labels.
        choice: Name of the choice in the labelling configuration, if it has several; by default the first one.
    """
    found = []
    for number, task in enumerate(_content(Path(path))):
        place = f"{path}, task {number}"
        data = task.get("data")
        if not isinstance(data, dict):
            raise DataError(f"{place} has no data: export the project as JSON, not as JSON-MIN.")
        if label in data:
            raise DataError(f"{place} has data called {label!r}: give the labels another name (label=).")
        agreed = _agreed(_choice(annotation, place, choice) for annotation in task.get("annotations") or ())
        cells = {name: json.dumps(cell) if isinstance(cell, dict | list) else cell for name, cell in data.items()}
        found.append({**cells, label: agreed})
    if not found:
        raise DataError(f"{path} holds no tasks.")
    return pl.DataFrame(found, infer_schema_length=None, strict=False)


def read_annotations(path: str | Path, choice: str = CHOICE) -> pl.DataFrame:
    """The decisions in a JSON export, as ``volmin.auditing.apply_decisions`` takes them.

    The given label chosen again is ``right``, another one ``wrong``. Tasks that everybody skipped, and those whose
    annotations differ, are ``unsure``; tasks without annotation are left out.

    Args:
        path: File exported as JSON or JSON-MIN.
        choice: Name of the choice in the labelling configuration. Of a configuration without it, the first choice is
            read; JSON-MIN must have it.
    """
    content = _content(Path(path))
    answers: dict[int, list[str | None]] = {}
    tasks: dict[int, Mapping[str, Any]] = {}
    for number, task in enumerate(content):
        place = f"{path}, task {number}"
        data = task.get("data", task)  # JSON-MIN has the data on the outer level, once for each annotation
        if not isinstance(data, dict) or any(name not in data for name in (ROW, GIVEN)):
            raise DataError(f"{place} has no {ROW} and {GIVEN}: it was not made by volmin.")
        if found := _answers(task, place, choice):
            answers.setdefault(data[ROW], []).extend(found)
            tasks[data[ROW]] = data
    if not answers:
        raise DataError(f"{path} holds no annotation of {len(content)} tasks: annotate some and export again.")
    return pl.DataFrame([_decision(tasks[row], _agreed(found)) for row, found in answers.items()])


def _content(path: Path) -> list[dict[str, Any]]:
    """The tasks in a file."""
    if not path.is_file():
        raise DataError(f"There is no file of annotations at {path}; export the project as JSON.")
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {str(error).splitlines()[0]}.") from None
    if not isinstance(content, list) or not all(isinstance(task, dict) for task in content):
        raise DataError(f"{path} must hold a list of tasks, as Label Studio exports them with JSON.")
    return content


def _task(data: dict[str, Any], score: float, shown: str, choice: str) -> dict[str, Any]:
    result = {"from_name": choice, "to_name": shown, "type": "choices", "value": {"choices": [data[SUGGESTED]]}}
    return {"data": data, "predictions": [{"model_version": "volmin", "score": score, "result": [result]}]}


def _plain(column: pl.Series) -> pl.Series:
    """Cells that JSON can represent: numbers, truth values and text."""
    if column.dtype.is_float():
        return column.fill_nan(None).set(column.is_infinite().fill_null(False), None)
    if column.dtype.is_integer() or column.dtype in (pl.Boolean, pl.String):
        return column
    return pl.Series(column.name, [None if value is None else str(value) for value in column], dtype=pl.String)


def _answers(task: Mapping[str, Any], place: str, choice: str) -> list[str | None]:
    """The labels of a task's annotations, None for skipped ones."""
    if "annotations" in task:
        return [_choice(annotation, place, choice) for annotation in task["annotations"]]
    return [_single(task[choice], place)] if choice in task else []


def _agreed(answers: Iterable[str | None]) -> str | None:
    """The label of all annotations that were not skipped; None if they differ or there is none."""
    given = {answer for answer in answers if answer is not None}
    return given.pop() if len(given) == 1 else None


def _decision(data: Mapping[str, Any], agreed: str | None) -> dict[str, str]:
    """The decision about a task."""
    given = str(data[GIVEN])
    return {
        "row": str(data[ROW]),
        "given": spreadsheet_safe(given),
        "suggested": spreadsheet_safe(data.get(SUGGESTED, given)),
        "decision": "unsure" if agreed is None else "right" if agreed == given else "wrong",
        "label": "" if agreed is None else spreadsheet_safe(agreed),
    }


def _choice(annotation: Any, place: str, name: str | None = None) -> str | None:
    """The label of an annotation; None if the task was skipped."""
    if not isinstance(annotation, dict) or not isinstance(annotation.get("result"), list):
        raise DataError(f"{place}: an annotation has no list called result.")
    if annotation.get("was_cancelled") or not annotation["result"]:
        return None
    parts = [part for part in annotation["result"] if isinstance(part, dict) and isinstance(part.get("value"), dict)]
    choices = [part for part in parts if "choices" in part["value"]]
    if not choices:
        raise DataError(f"{place}: the annotation has no choices; only classifications are read.")
    chosen = next((part for part in choices if part.get("from_name") == name), choices[0])
    return _single(chosen["value"]["choices"], place)


def _single(choices: Any, place: str) -> str:
    chosen = choices if isinstance(choices, list) else [choices]
    if len(chosen) != 1 or not isinstance(chosen[0], str):
        raise DataError(f"{place}: {len(chosen)} choices, but a label must be a single one.")
    return chosen[0]
