"""An audit on disk: files that are complete or not there, ``audit.json`` last; and the page made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from volmin.auditing import text as words
from volmin.data.tables import as_frame
from volmin.exceptions import DamagedFileError, DataError, InputError
from volmin.identifiability import ClassConditions, Scatter
from volmin.intervals import Interval, Intervals
from volmin.io.atomic import replace_file
from volmin.io.locks import only_process
from volmin.io.sealed import read_sealed_json, write_sealed_json
from volmin.io.spreadsheets import write_csv
from volmin.report import AuditStory, ClassLine, Confusion, write_audit_report
from volmin.report.examples import Examples, image_examples, no_examples, table_examples

if TYPE_CHECKING:
    from volmin.auditing.result import Audit

FORMAT = 1
"""Of ``audit.json``; another number means that other code must read it."""

MOST_CONFUSIONS = 30


def save(audit: Audit, folder: Path, examples: Any, names: Sequence[Any] | None, fdr: float) -> None:
    """Write everything; ``audit.json`` comes last and says that the rest is complete."""
    classes = [str(name) for name in audit.classes]
    rows = audit.issues(fdr)
    labels = _texts(audit, names)
    flagged = labels[rows.tolist()].with_columns(pl.col("probability_wrong").map_elements("{:.4f}".format, pl.String))
    shares = ((name, *(f"{share:.6f}" for share in line)) for name, line in zip(classes, audit.transition, strict=True))
    with only_process(folder):
        # Until the end there is no finished audit here, not even an older one.
        (folder / "audit.json").unlink(missing_ok=True)
        with replace_file(folder / "labels.parquet") as temporary:
            labels.with_columns(flagged=pl.Series(np.isin(np.arange(len(audit)), rows))).write_parquet(temporary)
        write_csv(folder / "issues.csv", flagged.columns, flagged.iter_rows())
        write_csv(folder / "transition.csv", ("given \\ true", *classes), shares)
        write_report(audit, folder / "report.html", examples, names, fdr)
        # The files for people are theirs to change; what is read again must be what was written.
        write_sealed_json(folder / "audit.json", _content(audit, fdr), ["labels.parquet"])


def read(folder: Path) -> dict[str, Any]:
    """The fields of an ``Audit``, from a folder."""
    try:
        content = read_sealed_json(folder / "audit.json", files=True)
        if content["format"] != FORMAT:
            raise DataError(f"{folder} was written by another version of volmin; run the audit again.")
        labels = pl.read_parquet(folder / "labels.parquet", columns=["given", "suggested", "probability_wrong"])
        names = content["classes"]
        place = {name: code for code, name in enumerate(names)}
        if not all(isinstance(name, str) for name in names) or len(place) < len(names):
            raise InputError("classes must be different texts")
        count = len(names)
        rare = _places(content["rare"], count)
        codes, suggested = (
            labels[column].replace_strict(place, return_dtype=pl.Int64).to_numpy() for column in ("given", "suggested")
        )
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
            "histories": [[dict(epoch) for epoch in history] for history in content["histories"]],
            "provenance": dict(content["provenance"]),
        }
    except FileNotFoundError:
        raise DataError(f"{folder} holds no finished audit: it has no audit.json with labels.parquet.") from None
    except (*_DAMAGE, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        if isinstance(error, DataError | DamagedFileError):
            raise
        raise DataError(f"{folder} holds a damaged audit ({type(error).__name__}: {error}); run it again.") from None


_DAMAGE = (LookupError, ValueError, TypeError, AttributeError, OverflowError)
"""What taking apart a JSON object of another form ends in."""


def _numbers(value: Any, *shape: int) -> NDArray[np.float64]:
    """Numbers of a known shape; null stands for one that is not finite."""
    array = np.array(value, dtype=np.float64)
    if array.shape != shape:
        raise InputError(f"numbers of the shape {shape} were expected, but there are {array.shape}")
    return array


def _places(value: Any, count: int) -> tuple[int, ...]:
    """Indices of classes."""
    if not all(type(place) is int and 0 <= place < count for place in value):
        raise InputError(f"indices of {count} classes were expected, but there are {value!r}")
    return tuple(value)


def write_report(audit: Audit, path: Path, examples: Any, names: Sequence[Any] | None, fdr: float) -> None:
    """Write the page of an audit."""
    rows = audit.issues(fdr)
    shown = _examples(examples, rows, len(audit))
    listed = rows[: len(shown)]
    low, high = words.noise_rate_bracket(audit)
    intervals = audit.intervals
    if intervals is not None:
        low, high = float(intervals.noise_rate.low), float(intervals.noise_rate.high)
    classes = [str(name) for name in audit.classes]
    story = AuditStory(
        title=audit.provenance.get("title", "Label audit"),
        headline=words.headline(audit),
        verdict=words.identifiability(audit),
        identified=audit.identified,
        notes=[words.rare_classes(audit)] if audit.rare else [],
        known=audit.provenance.get("known", ""),
        classes=classes,
        num_rows=len(audit),
        noise_rate=(audit.noise_rate, low, high),
        level=None if intervals is None else intervals.level,
        scatter_index=None if audit.scatter is None else audit.scatter.index,
        T=audit.transition,
        bounds=None if intervals is None else (intervals.transition.low, intervals.transition.high),
        class_lines=_class_lines(audit, classes),
        confusions=[Confusion(i, j, share * len(audit)) for i, j, share in audit.confusions(MOST_CONFUSIONS)],
        fdr=fdr,
        flagged=len(rows),
        expected_right=float(audit.quality[rows].sum()),
        rows=listed.tolist(),
        names=[] if names is None else [str(names[row]) for row in listed],
        given=audit.codes[listed].tolist(),
        suggested=audit.suggested_codes[listed].tolist(),
        wrong=[round(float(value), 4) for value in 1 - audit.quality[listed]],
        examples=shown,
        histories=audit.histories,
        provenance=audit.provenance,
    )
    write_audit_report(path, story)


def _class_lines(audit: Audit, names: list[str]) -> list[ClassLine]:
    given = np.bincount(audit.codes, minlength=len(names))
    rates, bounds, priors = audit.class_noise_rates, audit.noise_bounds, audit.class_priors
    return [
        ClassLine(
            name=names[j],
            given=int(given[j]),
            true=float(priors[j] * len(audit)),
            rate=float(rates[j]),
            low=float(bounds[j, 0]),
            high=float(bounds[j, 1]),
            most=float(audit.bracket[j, 1]),
            mostly=[(names[i], share) for i, share in words.main_confusions(audit, j)],
            judged=j not in audit.rare,
        )
        for j in np.argsort(-rates, kind="stable")
    ]


def _examples(examples: Any, rows: NDArray[np.int64], count: int) -> Examples:
    if examples is None:
        return no_examples(len(rows))
    if len(examples) != count and as_frame(examples) is None:
        raise InputError(f"examples must hold one entry per label: {count}, not {len(examples)}.")
    frame = as_frame(examples)
    return image_examples(examples, rows) if frame is None else table_examples(frame, rows)


def _texts(audit: Audit, names: Sequence[Any] | None) -> pl.DataFrame:
    """A line per label, as text, since labels may be anything."""
    classes = pl.Series([str(name) for name in audit.classes])
    columns = {
        "row": np.arange(len(audit)),
        "given": classes.gather(audit.codes),
        "suggested": classes.gather(audit.suggested_codes),
        "probability_wrong": 1 - audit.quality,
    }
    return pl.DataFrame(columns if names is None else columns | {"name": [str(name) for name in names]})


def _content(audit: Audit, fdr: float) -> dict[str, Any]:
    rows = audit.issues(fdr)
    return {
        "format": FORMAT,
        "rows": len(audit),
        "classes": [str(name) for name in audit.classes],
        "noise_rate": audit.noise_rate,
        "identified": audit.identified,
        "fdr": fdr,
        "flagged": len(rows),
        "expected_right_among_flagged": float(audit.quality[rows].sum()),
        "class_noise_rates": audit.class_noise_rates.tolist(),
        "class_priors": audit.class_priors.tolist(),
        "transition": audit.transition.tolist(),
        "joint": audit.joint.tolist(),
        "bracket": audit.bracket.tolist(),
        "intervals": None if audit.sampling is None else _plain(asdict(audit.sampling)),
        "scatter": None if audit.scatter is None else _scatter_content(audit.scatter),
        "verdict": words.identifiability(audit),
        "rare": list(audit.rare),
        "histories": [list(history) for history in audit.histories],
        "provenance": audit.provenance,
    }


def _plain(value: Any) -> Any:
    """What JSON can hold: arrays as lists, and null for numbers that are not finite."""
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
