"""The package's own exceptions and warnings.

Every error that a user can cause or correct is a ``VolminError``; any other exception is a defect of the package. Those
that scikit-learn and NumPy users expect to be a ``ValueError`` are one too.
"""

from __future__ import annotations


class VolminError(Exception):
    """Base of the package's own exceptions."""


class InputError(VolminError, ValueError):
    """An argument is invalid; the message says what was given and what to do."""


class DataError(InputError):
    """A data set or a file is missing, incomplete or not understood."""


class DamagedFileError(DataError):
    """A file does not hold what was written to it."""


class BusyError(VolminError, OSError):
    """Another process is working in the folder."""


class LostProcessError(VolminError, ConnectionError):
    """Another process of a data-parallel training has ended."""


class LostWorkersError(VolminError, OSError):
    """Worker processes of a grid of runs were lost repeatedly."""


class TrainingDivergedError(VolminError, ArithmeticError):
    """The training loss is no longer finite."""


class DegenerateTransitionWarning(UserWarning):
    """The estimated transition matrix is nearly singular, so the noisy labels barely distinguish some classes."""


class ColumnWarning(UserWarning):
    """Columns of a table are left out of the features."""
