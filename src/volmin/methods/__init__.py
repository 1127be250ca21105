"""Methods that learn from noisy labels: one file and one class each; the file's name is the method's name."""

from __future__ import annotations

from importlib import import_module

from volmin.exceptions import InputError
from volmin.methods.backward import Backward
from volmin.methods.base import Method
from volmin.methods.co_teaching import CoTeaching
from volmin.methods.co_teaching_plus import CoTeachingPlus
from volmin.methods.cross_entropy import CrossEntropy
from volmin.methods.crowd_layer import CrowdLayer
from volmin.methods.dawid_skene import DawidSkene
from volmin.methods.decoupling import Decoupling
from volmin.methods.dmi import DMI
from volmin.methods.dual_t import DualT
from volmin.methods.forward import Forward
from volmin.methods.gce import GCE
from volmin.methods.hoc import HOC
from volmin.methods.linear_noise_layer import LinearNoiseLayer
from volmin.methods.majority_vote import MajorityVote
from volmin.methods.mentornet import MentorNet
from volmin.methods.options import check_options, option_defaults
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
    "CrowdLayer",
    "DawidSkene",
    "Decoupling",
    "DualT",
    "Forward",
    "LinearNoiseLayer",
    "MajorityVote",
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

_METHODS: dict[str, type[Method]] = {
    value.__module__.rpartition(".")[2]: value
    for value in list(globals().values())
    if isinstance(value, type) and issubclass(value, Method) and value is not Method
}
"""Classes by the names of their files."""


def names() -> list[str]:
    """Names that ``get`` accepts."""
    return sorted(_METHODS)


def get(name: str) -> type[Method]:
    """The method in ``volmin/methods/<name>.py``, or a user's class given as ``"package.module:Class"``."""
    if not isinstance(name, str):
        raise InputError(f"The name of a method must be text, but is {name!r}.")
    if ":" in name:
        return _imported(name)
    if name not in _METHODS:
        raise InputError(f"Unknown method {name!r}. Choose one of: {', '.join(names())}.")
    return _METHODS[name]


def _imported(name: str) -> type[Method]:
    module, _, attribute = name.partition(":")
    if not module or module.startswith("."):
        raise InputError(f'A class outside volmin is named as "package.module:Class", but the name is {name!r}.')
    try:
        imported = import_module(module)
    except ImportError as error:
        raise InputError(f"The method {name} cannot be imported: {error}.") from error
    if (found := getattr(imported, attribute, None)) is None:
        raise InputError(f"The method {name} cannot be imported: {module} has no {attribute}.")
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise InputError(f"{name} is not a subclass of volmin.methods.Method.")
    return found
