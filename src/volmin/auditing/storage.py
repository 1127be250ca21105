"""Files of an audit. Each is written atomically; ``audit.json`` comes last and marks the others as complete."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from volmin._typing import Array, Labels
from volmin.auditing import text
from volmin.auditing.findings import Finding
from volmin.auditing.judges import Judge
from volmin.auditing.page import write_page
from volmin.auditing.reading import Readings
from volmin.auditing.result import AuditResult
from volmin.auditing.tables import BY_READING, label_table, write_suggestions
from volmin.exceptions import DataError
from volmin.identifiability import ClassConditions, Scatter
from volmin.intervals import Interval, Intervals
from volmin.io.atomic import replace_file
from volmin.io.locks import only_process
from volmin.io.sealed import read_sealed_json, write_sealed_json
from volmin.io.spreadsheets import write_csv

FORMAT = 1
"""Version of the format of ``audit.json``."""

Result = TypeVar("Result", bound=AuditResult)


def save(result: AuditResult, folder: Path, examples: Any, names: Sequence[Any] | None, fdr: float | None) -> None:
    """Write all files of an audit; the arguments are those of ``Audit.save``."""
    classes = [str(name) for name in result.classes]
    labels = label_table(result, names, fdr)
    shares = (
        (name, *(f"{share:.6f}" for share in line)) for name, line in zip(classes, result.transition, strict=True)
    )
    issues = labels[result.issues(fdr).tolist()].drop(
        "flagged", "suspicion", "certainty", "weight", *BY_READING, strict=False
    )
    issues = issues.with_columns(pl.col("probability_wrong").map_elements("{:.4f}".format, pl.String))
    with only_process(folder):
        # An older audit in the folder must not look finished while its files are replaced.
        (folder / "audit.json").unlink(missing_ok=True)
        with replace_file(folder / "labels.parquet") as temporary:
            labels.write_parquet(temporary)
        write_csv(folder / "issues.csv", issues.columns, issues.iter_rows())
        write_suggestions(result, folder / "suggestions.csv", names)
        write_csv(folder / "transition.csv", ("given \\ true", *classes), shares)
        write_page(result, folder / "report.html", examples, names, fdr)
        # Only the files that are read again get checksums; users may edit the others.
        write_sealed_json(folder / "audit.json", _content(result, fdr), ["labels.parquet"])


def load(folder: Path, kind: type[Result]) -> Result:
    """Read the audit in a folder, as an instance of ``kind``."""
    try:
        content = read_sealed_json(folder / "audit.json", files=True)
        if content["format"] != FORMAT:
            raise DataError(f"{folder} was written by another version of volmin; run the audit again.")
        labels = pl.read_parquet(folder / "labels.parquet")
        return kind(**_fields(content, labels))
    except FileNotFoundError:
        raise DataError(f"{folder} holds no finished audit: it has no audit.json with labels.parquet.") from None
    except DataError:
        raise
    except (*_MALFORMED, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"{folder} holds a damaged audit ({type(error).__name__}: {error}); run it again.") from None


_MALFORMED = (LookupError, ValueError, TypeError, AttributeError, OverflowError)
"""Errors that reading JSON of an unexpected structure raises; the file may hold anything."""


def _fields(content: dict[str, Any], labels: pl.DataFrame) -> dict[str, Any]:
    """The fields of an ``AuditResult``, from the content of ``audit.json`` and ``labels.parquet``."""
    names = content["classes"]
    place = {name: code for code, name in enumerate(names)}
    if not all(isinstance(name, str) for name in names) or len(place) < len(names):
        raise ValueError("classes must be distinct strings")
    count = len(names)
    rare = _places(content["rare"], count)
    codes, suggested = (
        labels[column].replace_strict({None: -1, **place}, return_dtype=pl.Int64).to_numpy()
        for column in ("given", "suggested")
    )
    if suggested.min() < 0:
        raise ValueError("every row must have a suggested label")
    return {
        "classes": np.array(names),
        "codes": codes,
        "suggested_codes": suggested,
        "quality": 1 - labels["probability_wrong"].to_numpy(),
        "transition": _numbers(content["transition"], count, count),
        "joint": _numbers(content["joint"], count, count),
        "clean_probs": None,
        "scatter": None if content["scatter"] is None else _scatter_from(content["scatter"], count - len(rare)),
        "bracket": _numbers(content["bracket"], count, 2),
        "sampling": None if content["intervals"] is None else _intervals_from(content["intervals"], count),
        "rare": rare,
        **_reading_fields(content, labels, count),
        **_judge_fields(content),
        "histories": [[dict(epoch) for epoch in history] for history in content["histories"]],
        "embedding": _embedding_from(content.get("embedding"), labels.height),
        "provenance": dict(content["provenance"]),
        "certainty": labels["certainty"].to_numpy()[codes < 0] if (codes < 0).any() else np.empty(0),
        "weights": labels["weight"].to_numpy() if "weight" in labels.columns else None,
    }


def _reading_fields(content: dict[str, Any], labels: pl.DataFrame, count: int) -> dict[str, Any]:
    """The fields that audits of earlier versions lack."""
    if "readings" not in content:
        return {}
    found, num_flagged = content["readings"], content["num_flagged"]
    if type(num_flagged) is not int or not 0 <= num_flagged <= labels.height:
        raise ValueError(f"num_flagged must be a number of rows, but is {num_flagged!r}")
    rates, correct = (_numbers(found[name], 2) for name in ("noise_rates", "flagged_correct"))
    return {
        "suspicion": labels["suspicion"].to_numpy(),
        "num_flagged": num_flagged,
        "qualities": _qualities(labels),
        "readings": Readings(
            # JSON has no infinity.
            sharpness=math.inf if found["sharpness"] is None else float(_numbers(found["sharpness"])),
            noise_rates=(float(rates[0]), float(rates[1])),
            class_noise_rates=_numbers(found["class_noise_rates"], count, 2),
            flagged_correct=(float(correct[0]), float(correct[1])),
            decided=float(_numbers(found.get("decided", 1.0))),
            transition=_numbers(found["transition"], count, count) if found.get("transition") else None,
        ),
    }


def _qualities(labels: pl.DataFrame) -> Array | None:
    if not set(BY_READING) <= set(labels.columns):
        return None
    return 1 - labels.select(BY_READING).to_numpy().astype(np.float64)


def _judge_fields(content: dict[str, Any]) -> dict[str, Any]:
    """Judges and findings, which audits of earlier versions lack."""
    if "judges" not in content:
        return {}
    rates = np.array(content["repeated_rates"], dtype=np.float64).reshape(-1, 2)
    return {
        "judges": [
            Judge(str(entry["name"]), *(float(entry[key]) for key in ("weight", "log_likelihood", "agreement")))
            for entry in content["judges"]
        ],
        "findings": [Finding(str(entry["code"]), str(entry["text"])) for entry in content["findings"]],
        "repeated_rates": rates,
    }


def _embedding_from(content: Any, height: int) -> tuple[Labels, Array] | None:
    """Rows and their positions; None for an audit without features, or of an earlier version."""
    if content is None:
        return None
    rows, points = content
    return np.array(_places(rows, height), dtype=np.int64), _numbers(points, len(rows), 2)


def _numbers(value: Any, *shape: int) -> Array:
    """An array of numbers that must have this shape; null becomes NaN."""
    array = np.array(value, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"numbers of shape {shape} were expected, but have shape {array.shape}")
    return array


def _places(value: Any, count: int) -> tuple[int, ...]:
    """Positions among ``count`` classes."""
    if not all(type(place) is int and 0 <= place < count for place in value):
        raise ValueError(f"positions among {count} classes were expected, but there are {value!r}")
    return tuple(value)


def _content(result: AuditResult, fdr: float | None) -> dict[str, Any]:
    rows = result.issues(fdr)
    return {
        "format": FORMAT,
        "rows": result.num_labels,
        "unlabelled": len(result) - result.num_labels,
        "classes": [str(name) for name in result.classes],
        "noise_rate": result.noise_rate,
        "noise_range": list(result.noise_range),
        "identified": result.identified,
        "fdr": fdr,
        "flagged": len(rows),
        "expected_right_among_flagged": float(result.quality[rows].sum()),
        "class_noise_rates": result.class_noise_rates.tolist(),
        "class_priors": result.class_priors.tolist(),
        "transition": result.transition.tolist(),
        "joint": result.joint.tolist(),
        "bracket": result.bracket.tolist(),
        "intervals": None if result.sampling is None else _plain(asdict(result.sampling)),
        "scatter": None if result.scatter is None else _scatter_content(result.scatter),
        **_reading_content(result),
        "verdict": text.identifiability(result),
        "rare": list(result.rare),
        "judges": [asdict(judge) for judge in result.judges],
        "findings": [asdict(finding) for finding in result.findings],
        "repeated_rates": result.repeated_rates.tolist(),
        "histories": [list(history) for history in result.histories],
        "embedding": None if result.embedding is None else [part.tolist() for part in result.embedding],
        "provenance": result.provenance,
    }


def _reading_content(result: AuditResult) -> dict[str, Any]:
    if result.readings is None:
        return {}
    more = {"gap": result.readings.gap, "differ": result.readings.differ}
    return {"num_flagged": result.num_flagged, "readings": _plain(asdict(result.readings) | more)}


def _plain(value: Any) -> Any:
    """The value in types of JSON: arrays as lists, and null for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _scatter_content(scatter: Scatter) -> dict[str, Any]:
    return _plain(asdict(scatter)) | {"profile": [list(point) for point in scatter.profile.items()]}


def _scatter_from(content: dict[str, Any], count: int) -> Scatter:
    conditions = content["per_class"]
    per_class = ClassConditions(
        peak=_numbers(conditions["peak"], count),
        zeros=_numbers(conditions["zeros"], count).astype(np.int64),
        rank=_numbers(conditions["rank"], count).astype(np.int64),
        reach=_numbers(conditions["reach"], count),
        failing=_places(conditions["failing"], count),
    )
    return Scatter(
        index=float(_numbers(content["index"])),
        holds=bool(content["holds"]),
        exact=bool(content["exact"]),
        witness=_numbers(content["witness"], count),
        missing=_numbers(content["missing"], count),
        per_class=per_class,
        tolerance=float(_numbers(content["tolerance"])),
        profile={float(tau): float(index) for tau, index in content["profile"]},
        quantile=float(_numbers(content["quantile"])),
    )


def _intervals_from(content: dict[str, Any], count: int) -> Intervals:
    def interval(name: str, *shape: int) -> Interval:
        return Interval(**{field.name: _numbers(content[name][field.name], *shape) for field in fields(Interval)})

    return Intervals(
        level=float(_numbers(content["level"])),
        conditional=bool(content["conditional"]),
        transition=interval("transition", count, count),
        class_noise_rates=interval("class_noise_rates", count),
        class_priors=interval("class_priors", count),
        noise_rate=interval("noise_rate"),
    )
