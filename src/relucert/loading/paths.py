"""Checks of the paths to load from: a readable file that is not a pickle."""

import os
from pathlib import Path

from relucert.errors import LoadError

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")
_ZIP = b"PK\x03\x04"
_PROTOCOLS = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))


def check_file(path: Path) -> None:
    """Raises LoadError unless the path is a file that can be read and does not look like a pickle."""
    if path.suffix.lower() in PICKLES:
        raise _pickled(path)
    if os.path.isdir(path):
        raise LoadError(f"{path} is a directory; name the .onnx or .safetensors file itself")
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except FileNotFoundError:
        raise LoadError(f"there is no file {path}; check the path") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} can't be read: {one_line(error)}") from error
    # A safetensors file begins with its header's length, which may look like a pickle's protocol, then "{".
    if head.startswith(_ZIP) or (head.startswith(_PROTOCOLS) and head[8:] != b"{"):
        raise _pickled(path)


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _pickled(path: Path) -> LoadError:
    return LoadError(
        f"{path} looks like a pickle, which can run any code when it is opened; "
        "export the model to ONNX, write it with relucert.save, or pass the torch.nn.Module itself"
    )
