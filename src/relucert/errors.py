"""The errors a user can cause: one clear line each, all under `RelucertError`. And the one that nobody should see.

`InputWarning` is for what is no error, and is hardly what the user meant.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

PACKAGE = str(Path(__file__).parent) + os.sep


class RelucertError(Exception):
    """Anything the user can mend; the command line prints it as one line and exits with 2."""

    def __init__(self, message: str = "") -> None:
        super().__init__(" ".join(message.splitlines()))


class InputError(RelucertError, ValueError):
    """Images, labels, radii or options that do not fit the network or the question."""


class StoreError(InputError):
    """A file that can't keep a run's answers: it can't be written, is in use, or is about something else."""


class OpenShapeError(InputError):
    """A network that leaves the shape of its input open, where nothing else tells it."""


class DivergedError(InputError):
    """A training whose loss or weights left the numbers: its settings do not suit it."""


class NetworkError(RelucertError, ValueError):
    """A network that is inconsistent: shapes that do not fit, or weights that are not finite."""


class LoadError(RelucertError, ValueError):
    """A file, module or download that can't be read as a network, as images or as a run."""


class OutputsError(LoadError):
    """A module that returns more than the class scores with no word on which they are, or not what was named."""


class UnsupportedError(LoadError):
    """Operators or attributes outside the supported set; the message names all of them."""


class MismatchError(LoadError):
    """An import whose outputs differ from those of its own runtime."""


class BudgetError(RelucertError, MemoryError):
    """Work on a single image that does not fit the memory budget."""


class RoundingError(RelucertError, ArithmeticError):
    """A processor that is told to round otherwise than proofs count with, as by `torch.set_flush_denormal(True)`."""


class InputWarning(UserWarning):
    """Images that hardly suit the network: what is answered about them holds, but is hardly what was meant."""


class MissingPackageError(RelucertError, ImportError):
    """Something that needs a package which relucert itself does without, and which is not installed."""


class ContradictionError(Exception):
    """Two answers that can't both be true: a fault of relucert's own, whatever was asked."""


class RemarkWarning(UserWarning):
    """Something about a network that was loaded which its user should know; the network has it in `remarks`."""


FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What a failure inside a method raises. Its answer is then marked as failed, and the others are found all the same."""


def warn(message: str, category: type[Warning]) -> None:
    """Warns at the line, outside of this package, that called it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def in_one_line(error: BaseException) -> str:
    """What was raised, and what it says."""
    return " ".join(f"{type(error).__name__}: {error}".split())
