"""Methods: one file each. The file's name is the method's name; there is no registry to edit."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from volmin.methods.base import Method, check_options, option_defaults

if TYPE_CHECKING:
    from volmin.methods.backward import Backward
    from volmin.methods.co_teaching import CoTeaching
    from volmin.methods.co_teaching_plus import CoTeachingPlus
    from volmin.methods.cross_entropy import CrossEntropy
    from volmin.methods.decoupling import Decoupling
    from volmin.methods.dmi import DMI
    from volmin.methods.dual_t import DualT
    from volmin.methods.forward import Forward
    from volmin.methods.gce import GCE
    from volmin.methods.hoc import HOC
    from volmin.methods.linear_noise_layer import LinearNoiseLayer
    from volmin.methods.mentornet import MentorNet
    from volmin.methods.ptd import PTD
    from volmin.methods.reweight import Reweight
    from volmin.methods.s_adaptation import SAdaptation
    from volmin.methods.t_revision import TRevision
    from volmin.methods.tv import TV
    from volmin.methods.volminnet import VolMinNet

__all__ = [
    "DMI",
    "GCE",
    "HOC",
    "PTD",
    "TV",
    "Backward",
    "CoTeaching",
    "CoTeachingPlus",
    "CrossEntropy",
    "Decoupling",
    "DualT",
    "Forward",
    "LinearNoiseLayer",
    "MentorNet",
    "Method",
    "Reweight",
    "SAdaptation",
    "TRevision",
    "VolMinNet",
    "check_options",
    "get",
    "names",
    "option_defaults",
]

_SHARED = {"base", "small_loss"}


def names() -> list[str]:
    """Names that ``get`` takes."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in _SHARED)


def get(name: str) -> type[Method]:
    """The method in ``volmin/methods/<name>.py``, or a class of your own as ``"package.module:Class"``."""
    module, _, attribute = name.partition(":")
    if attribute:
        return _own(module, attribute)
    if name not in names():
        raise ValueError(f"Unknown method {name!r}. Choose one of: {', '.join(names())}.")
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
        raise ValueError(f"The method {module}:{attribute} cannot be imported: {error}.") from None
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ValueError(f"{module}:{attribute} is not a subclass of volmin.methods.Method.")
    return found


def __getattr__(attribute: str) -> Any:
    for name in names():
        if (method := get(name)).__name__ == attribute:
            return method
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
