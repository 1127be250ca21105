"""Options of a method: the keyword-only arguments of its constructor, found and checked by their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from volmin.exceptions import InputError
from volmin.methods.base import Method


def option_defaults(method: type[Method]) -> dict[str, Any]:
    """The options of a method with their default values."""
    parameters = inspect.signature(method.__init__).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def check_options(method: type[Method], options: Mapping[str, Any]) -> None:
    """Require options that the method has, with values of the annotated types."""
    known, hints = option_defaults(method), get_type_hints(method.__init__)
    for name, value in options.items():
        if name not in known:
            have = f"It has: {', '.join(known)}." if known else "It has none."
            raise InputError(f"{method.__name__} has no option {name!r}. {have}")
        hint = hints.get(name, Any)
        if not _fits(value, hint):
            wanted = getattr(hint, "__name__", str(hint)) if get_origin(hint) is None else str(hint)
            raise InputError(f"The option {name} of {method.__name__} takes {wanted}, but was given {value!r}.")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value has the annotated type; an int is accepted as a float, a bool as neither."""
    if hint is Any:
        return True
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    return isinstance(value, get_origin(hint) or hint)
