"""The files that networks are loaded from: readable, no pickles, and identified by their SHA-256."""

import hashlib
import os
import zipfile
from pathlib import Path

from relucert.common import packed
from relucert.errors import LoadError

GZIPPED = ".gz"
ONNX = (".onnx", f".onnx{GZIPPED}")
MOST_BYTES = 2**32  # of a network's file, also where it is compressed
PICKLES = (".pt", ".pth", ".pt2", ".pkl", ".pickle", ".ckpt", ".bin")  # suffixes of files that are never opened
_ZIP = b"PK\x03\x04"
_PROTOCOLS = tuple(bytes((0x80, protocol)) for protocol in range(2, 6))


def is_onnx(path: object) -> bool:
    """Whether this is the path of an ONNX file, which may be gzipped, as it is called."""
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).lower().endswith(ONNX)


def name_of(path: Path) -> str:
    """The name of a network by that of its file."""
    return (path.with_suffix("") if path.suffix.lower() == GZIPPED else path).stem


def check_file(path: Path) -> None:
    """Raises LoadError unless the path is a file that can be read and does not look like a pickle."""
    if os.path.isdir(path):
        raise LoadError(f"{path} is a directory; name the .onnx or .safetensors file itself")
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except FileNotFoundError:
        raise LoadError(f"there is no file {path}{packed.packed_beside(path) or '; check the path'}") from None
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} can't be read: {one_line(error)}") from error
    if not head:
        raise LoadError(f"{path} is empty; write it again")
    # A safetensors file begins with its header's length, which may look like a pickle's protocol, then "{".
    pickled = head.startswith(_ZIP) or (head.startswith(_PROTOCOLS) and head[8:] != b"{")
    if pickled or path.suffix.lower() in PICKLES:
        raise LoadError(_pickled(path))


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or the name of its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _pickled(path: Path) -> str:
    """The error about an archive or a pickle, which is not opened, with the code that makes it loadable."""
    entries = _entries(path)
    content, source = "a state dictionary or the like", "module"
    line = f"module = MyModule(); module.load_state_dict(torch.load({str(path)!r}, weights_only=True))"
    if any(name.endswith(".npy") for name in entries):
        return f"{path} has NumPy arrays but no network; export the model to ONNX, or pass the torch.nn.Module"
    if path.suffix.lower() == ".pt2" or any(name.endswith("archive_format") for name in entries):
        content, source, line = "an exported program", "program", f"program = torch.export.load({str(path)!r})"
    elif any("/code/" in name for name in entries):
        content, line = "a script module", "module = MyModule()  # the class that was scripted, with its weights"
    return (
        f"{path} looks like a pickle ({content}), which can run any code when it is opened: "
        f"write `{line}` and `relucert.load({source})`, or export the model to ONNX"
    )


def _entries(path: Path) -> list[str]:
    """The names of the files in a zip archive; none where it is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return []


EXTERNAL = b"location"  # how an .onnx file calls the place of a tensor that it keeps in another one


def file_digest(path: Path) -> str:
    """The SHA-256 of a network's file, unpacked, and of those that it keeps tensors in."""
    stored = packed.content(path, MOST_BYTES)
    digest = hashlib.sha256(stored)
    if is_onnx(path) and EXTERNAL in stored:
        for external in _external(path, stored):
            digest.update(hashlib.sha256(external.read_bytes()).digest())
    return digest.hexdigest()


def _external(path: Path, model: bytes) -> list[Path]:
    """The files beside a model that have some of its tensors."""
    import onnx  # which takes its time, and is seldom needed here
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        graph = onnx.load_model_from_string(model).graph
    except DecodeError:
        return []  # whoever loads it says so
    tensors = [
        *graph.initializer,
        *(attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")),
    ]
    names = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == EXTERNAL.decode()}
    return [path.parent / name for name in sorted(names) if (path.parent / name).is_file()]
