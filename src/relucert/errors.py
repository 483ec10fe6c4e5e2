"""The errors a user can cause: one clear line each, all under `RelucertError`. And the one that nobody should see."""


class RelucertError(Exception):
    """Anything the user can mend; the command line prints it as one line and exits with 2."""


class InputError(RelucertError, ValueError):
    """Images, labels, radii or options that do not fit the network or the question."""


class DivergedError(InputError):
    """A training whose loss or weights left the numbers: its settings do not suit it."""


class NetworkError(RelucertError, ValueError):
    """A network that is inconsistent: shapes that do not fit, or weights that are not finite."""


class LoadError(RelucertError, ValueError):
    """A file, module or download that can't be read as a network, as images or as a run."""


class UnsupportedError(LoadError):
    """Operators or attributes outside the supported set; the message names all of them."""


class MismatchError(LoadError):
    """An import whose outputs differ from those of its own runtime."""


class BudgetError(RelucertError, MemoryError):
    """Work on a single image that does not fit the memory budget."""


class ContradictionError(Exception):
    """Two answers that can't both be true: a fault of relucert's own, whatever was asked."""


class RemarkWarning(UserWarning):
    """Something about a network that was loaded which its user should know; the network has it in `remarks`."""


FAULTS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What a failure inside a method raises. Its answer is then marked as failed, and the others are found all the same."""


def in_one_line(error: BaseException) -> str:
    """What was raised, and what it says."""
    return " ".join(f"{type(error).__name__}: {error}".split())
