"""Methods: one file each. The file's name is the method's name; there is no registry to edit.

A class is found under its own name too: ``volmin.methods.VolMinNet`` is the one in ``volminnet.py``.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from volmin.exceptions import InputError
from volmin.methods.base import Method, check_options, option_defaults

__all__ = ["Method", "check_options", "get", "names", "option_defaults"]


def names() -> list[str]:
    """Names that ``get`` takes."""
    files = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in files if name != "base" and not name.startswith("_"))


def get(name: str) -> type[Method]:
    """The method in ``volmin/methods/<name>.py``, or a class of your own as ``"package.module:Class"``."""
    if not isinstance(name, str):
        raise TypeError(f"The name of a method must be text, but is {name!r}.")
    module, _, attribute = name.partition(":")
    if attribute:
        return _own(module, attribute)
    if name not in names():
        raise InputError(f"Unknown method {name!r}. Choose one of: {', '.join(names())}.")
    room = import_module(f"{__name__}.{name}")
    return next(
        value
        for value in vars(room).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == room.__name__
    )


def _own(module: str, attribute: str) -> type[Method]:
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"The method {module}:{attribute} cannot be imported: {error}.") from None
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"{module}:{attribute} is not a subclass of volmin.methods.Method.")
    return found


def __getattr__(attribute: str) -> Any:
    for name in names():
        if (method := get(name)).__name__ == attribute:
            return method
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
