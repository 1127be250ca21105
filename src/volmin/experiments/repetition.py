"""A run from the file of its spec, to repeat it exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from volmin import data, methods
from volmin.data import AUGMENTATIONS
from volmin.data.encoders import NamedEncoder
from volmin.exceptions import InputError
from volmin.experiments import acceleration
from volmin.experiments.presets import PRESETS
from volmin.experiments.source import DataSource
from volmin.experiments.spec import RunSpec
from volmin.progress import Progress
from volmin.training import Recipe
from volmin.training.precision import check_precision


def read_spec(path: Path, method: str | None = None) -> RunSpec:
    """The spec in a file or in a run folder.

    Args:
        path: A ``spec.json``, or the folder of a run.
        method: The method, which must be named here if it is from outside this package: no file has it imported.
    """
    path = path / "spec.json" if path.is_dir() else path
    if not path.is_file():
        raise InputError(f"There is no spec at {path}: give the folder of a run, or the spec.json in it.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not the spec of a run: {error}") from None
    try:
        return _parsed(content, method)
    except (InputError, TypeError, KeyError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise InputError(f"{path} is not the spec of a run that can be repeated: {reason}") from None


def _parsed(content: Any, method: str | None) -> RunSpec:
    if not isinstance(content, Mapping):
        raise InputError("it holds no fields.")
    known = {field.name: field for field in fields(RunSpec)}
    if unknown := sorted(content.keys() - known.keys()):
        raise InputError(f"unknown fields {', '.join(unknown)}.")
    required = [name for name, field in known.items() if field.default is field.default_factory is MISSING]
    if missing := sorted(set(required) - content.keys()):
        raise InputError(f"the fields {', '.join(missing)} are missing.")
    for name, check in _CHECKS.items():
        if name in content and not check(content[name]):
            raise InputError(f"{name} cannot be {content[name]!r}.")
    if method not in (None, content["method"]):
        raise InputError(f"its method is {content['method']}, not {method}.")
    if method is None and content["method"] not in methods.names():
        raise InputError(f"its method is not part of volmin; if you trust it, add --method {content['method']}.")
    kind = methods.get(content["method"])
    methods.check_options(kind, content["options"])
    acceleration.choose(content["network"], content.get("accelerated", False))
    check_precision(content.get("precision", "32"))
    return RunSpec(**{**content, "recipe": Recipe(**content["recipe"])})


def _count(value: Any) -> bool:
    return type(value) is int and value >= 1


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "dataset": lambda value: value in PRESETS or str(value).removesuffix("/NA") in data.names(),
    "noise": lambda value: isinstance(value, str),
    "seed": lambda value: type(value) is int and value >= 0,
    "preset": lambda value: isinstance(value, str),
    "network": lambda value: isinstance(value, str),
    "options": lambda value: isinstance(value, Mapping),
    "recipe": lambda value: isinstance(value, Mapping),
    "devices": _count,
    "threads": _count,
    "patience": lambda value: value is None or _count(value),
    "image_side": lambda value: value is None or _count(value),
    "augmentation": lambda value: value is None or value in AUGMENTATIONS,
    "pretrained": lambda value: isinstance(value, bool),
    "accelerated": lambda value: isinstance(value, bool),
    "data": lambda value: isinstance(value, Mapping),
}


def source_of(
    spec: RunSpec,
    dataset: str | None = None,
    labels: str | None = None,
    data_dir: Path | None = None,
    *,
    text_encoder: NamedEncoder | None = None,
    image_encoder: NamedEncoder | None = None,
    progress: Progress | None = None,
) -> DataSource:
    """The data of a spec. A spec holds names and hashes of the user's own files, not their paths.

    Args:
        spec: Run to repeat.
        dataset: Path of the user's own data; by default their name, in the current folder.
        labels: Path of a file with noisy labels; by default its name, in the current folder.
        data_dir: Folder with the official files of a named data set.
        text_encoder: Encoder of the columns of text, if the run had one.
        image_encoder: Encoder of the images, if the run had one.
        progress: Callback for loading the data.
    """
    recorded = spec.data
    if "labels_file" in recorded:
        file = _found(labels, recorded["labels_file"], "--labels")
        key = recorded.get("labels_key")
        source = DataSource(spec.dataset, data_dir, labels=f"{file}:{key}" if key else file, progress=progress)
    elif "file" in recorded:
        source = DataSource(
            _found(dataset, recorded["file"], "--dataset"),
            label=recorded.get("label"),
            clean=recorded.get("clean"),
            ignore=tuple(recorded.get("ignore", ())),
            types=tuple(recorded.get("types", {}).items()),
            images="pixels_sha256" in recorded,
            size=recorded.get("size"),
            text_encoder=text_encoder,
            image_encoder=image_encoder,
            progress=progress,
        )
    else:
        source = DataSource(spec.dataset, data_dir, progress=progress)
    given = json.loads(json.dumps(source.identity()))
    if differing := sorted(key for key in recorded.keys() | given.keys() if recorded.get(key) != given.get(key)):
        raise InputError(f"{source.labels or source.name} is not the data of the spec: {', '.join(differing)} differ.")
    return source


def _found(given: str | None, recorded: str, option: str) -> str:
    if given is None and not Path(recorded).exists():
        raise InputError(f"The spec is of a run on {recorded}, which is not in this folder: give its path ({option}).")
    return given or recorded
