"""Which argument of a function of tensors was wrong, once the function has failed.

The mathematics is called in every step of training, so nothing is checked before it. Where it fails, what libraries say
of their insides is replaced by a ``ValueError`` that names the argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from volmin.exceptions import InputError

Given = ParamSpec("Given")
Result = TypeVar("Result")


def named(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The same function, whose failures name the argument that caused them.

    Arguments are known by their names: ``logits`` (N, C), ``clean`` (N, C), ``y`` (N,), ``T`` (C, C) or (N, C, C),
    ``joint`` (C, C), ``losses`` (N,).
    """

    @wraps(function)
    def told(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except (RuntimeError, IndexError, AttributeError, TypeError) as error:
            given = inspect.signature(function).bind(*args, **kwargs).arguments
            problem = next(_problems(given), None)
            if problem is None:
                raise
            raise InputError(problem) from error

    return told


def _problems(given: Mapping[str, Any]) -> Iterator[str]:
    for name, dimensions in _DIMENSIONS.items():
        value = given.get(name)
        if name not in given:
            continue
        if not isinstance(value, Tensor):
            yield f"{name} must be a tensor, but is {type(value).__name__}."
            return
        if value.ndim not in dimensions:
            wanted = " or ".join(map(str, dimensions))
            yield f"{name} must have {wanted} dimensions, but has shape {tuple(value.shape)}."
            return
        if (name == "y") == value.is_floating_point():
            wanted = "int64" if name == "y" else "floating point"
            yield f"{name} must be of the type {wanted}, but is {value.dtype}."
            return
    yield from _misfits(given)
    others = {name: value for name, value in given.items() if name not in _DIMENSIONS}
    for name, value in others.items():
        if not isinstance(value, Tensor | int | float | str | None):
            yield f"{name} must be a tensor or a number, but is {type(value).__name__}."
    if shapes := [f"{name} {tuple(value.shape)}" for name, value in given.items() if isinstance(value, Tensor)]:
        yield f"The arguments do not fit each other: {', '.join(shapes)}."


_DIMENSIONS = {"logits": (2,), "clean": (2,), "losses": (1,), "joint": (2,), "T": (2, 3), "y": (1,)}


def _misfits(given: Mapping[str, Any]) -> Iterator[str]:
    """Arguments that are right one by one, and do not fit each other."""
    rows, y, T = given.get("logits", given.get("clean")), given.get("y"), given.get("T", given.get("joint"))
    if y is not None and y.dtype != torch.int64:
        yield f"y must be of the type int64, but is {y.dtype}."
    if T is not None and T.shape[-1] != T.shape[-2]:
        yield f"T must be square, but has shape {tuple(T.shape)}."
    if T is not None and not bool((T.abs() < 1e30).all()):
        yield "T holds NaN, infinite or huge entries."
    if rows is None:
        return
    name = "logits" if "logits" in given else "clean"
    if T is not None and T.shape[-1] != rows.shape[1]:
        yield f"T is for {T.shape[-1]} classes, but {name} have shape {tuple(rows.shape)}."
    if T is not None and T.ndim == 3 and len(T) != len(rows):
        yield f"T is for {len(T)} rows, but {name} have shape {tuple(rows.shape)}."
    if T is not None and T.dtype != rows.dtype:
        yield f"T and {name} must be of one type, but are {T.dtype} and {rows.dtype}."
    if y is not None and len(y) != len(rows):
        yield f"y must hold a label for each of the {len(rows)} rows of {name}, but holds {len(y)}."
    if y is not None and len(y) and not 0 <= int(y.min()) <= int(y.max()) < rows.shape[1]:
        yield f"y must lie in 0..{rows.shape[1] - 1}, but spans {int(y.min())}..{int(y.max())}."
