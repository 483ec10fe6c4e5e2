"""Downloads: whole and checked, or one clear line and nothing left behind."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relucert import data
from relucert.data import catalogue, download
from relucert.errors import LoadError
from relucert.inputs.storage import files
from tests.data.samples import IMAGE_FILE, MNIST_FILES, Mirror, serving

FIRST = f"{IMAGE_FILE}.gz"


def _left(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if not path.is_dir()]


def test_progress(mnist: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "BLOCK", 1000)
    told: list[tuple[str, int, int]] = []
    data.load("mnist", "test", progress=lambda *news: told.append(news))
    for name, content in MNIST_FILES.items():
        done = [count for file, count, total in told if file == name and total == len(content)]
        assert done == sorted(done)
        assert done[-1] == len(content)
        assert len(done) >= len(content) // 1000
    told.clear()
    data.load("mnist", "test", progress=lambda *news: told.append(news))
    assert told == []


FAULTS = {
    "404": "404 Not Found",
    "403": "403 Forbidden",
    "500": "500 Internal Server Error",
    "altered": "not the original file: its SHA-256 is",
    "truncated": "the connection ended after",
    "more": "more than the expected",
    "noise": "no connection: this is not HTTP",
    "silent": "timed out",
    "redirect http://example.org/": "http://example.org/t10k-images-idx3-ubyte.gz is not an https address",
    "redirect file:///etc/": "is not allowed",
    "redirect http://[": "no connection: Invalid IPv6 URL",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_servers(mnist: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2 if fault == "silent" else 10)
    mnist.fault = fault
    with pytest.raises(LoadError) as caught:
        data.load("mnist", "test")
    message = str(caught.value)
    assert message.startswith(f"can't download {FIRST} (127.0.0.1: ")
    assert FAULTS[fault] in message
    assert "RELUCERT_DATA" in message
    assert "\n" not in message
    assert _left(cache) == []


def test_nobody_listens(mnist: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/"
        monkeypatch.setitem(catalogue.COLLECTIONS, "mnist", mnist.collection("mnist", address))
        with pytest.raises(LoadError, match=r"127.0.0.1: no connection: Connection refused"):
            data.load("mnist", "test")
    assert _left(cache) == []


def test_offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unresolved(*arguments: object, **options: object) -> None:
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    for variable in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", unresolved)
    with pytest.raises(LoadError) as caught:
        data.load("mnist", "train")
    failure = "no connection: Temporary failure in name resolution"
    assert str(caught.value) == (
        f"can't download train-images-idx3-ubyte.gz (ossci-datasets.s3.amazonaws.com: {failure}; "
        f"storage.googleapis.com: {failure}); "
        "a folder that holds the MNIST training images can be named with --data-dir or RELUCERT_DATA"
    )
    assert _left(cache) == []


def test_plain_http_is_refused(mnist: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.COLLECTIONS, "mnist", mnist.collection("mnist", "http://example.org/"))
    with pytest.raises(LoadError, match=f"http://example.org/{FIRST} is not an https address"):
        data.load("mnist", "test")


def test_a_redirection_is_followed(mnist: Mirror) -> None:
    with serving(MNIST_FILES) as elsewhere:
        mnist.fault = f"redirect {elsewhere.address}"
        assert len(data.load("mnist", "test")) == 5
        assert elsewhere.asked == list(MNIST_FILES)


@pytest.mark.parametrize("fault", ["404", "altered", "truncated"])
def test_the_next_mirror_helps(mnist: Mirror, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    mnist.fault = fault
    with serving(MNIST_FILES) as second:
        both = mnist.collection("mnist", mnist.address, second.address)
        monkeypatch.setitem(catalogue.COLLECTIONS, "mnist", both)
        assert len(data.load("mnist", "test")) == 5
        assert mnist.asked == second.asked == list(MNIST_FILES)


def test_an_interruption_leaves_nothing(mnist: Mirror, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "BLOCK", 1000)

    def interrupt(name: str, done: int, total: int) -> None:
        assert done < total
        assert len(_left(cache)) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.load("mnist", "test", progress=interrupt)
    assert _left(cache) == []


def test_a_full_disk(mnist: Mirror, cache: Path) -> None:
    """A limit on the size of files: the writing itself fails, as on a disk without space."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(LoadError) as caught:
            data.load("mnist", "test")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"can't save the download {cache}/relucert/data/mnist/{FIRST}: File too large" in str(caught.value)
    assert _left(cache) == []


def test_a_cache_that_is_no_folder(mnist: Mirror, cache: Path) -> None:
    (cache / "relucert").write_text("in the way")
    with pytest.raises(LoadError, match=r"can't save the download .*Not a directory"):
        data.load("mnist", "test")
    assert (cache / "relucert").read_text() == "in the way"


def test_what_a_killed_download_left_is_removed(mnist: Mirror, cache: Path) -> None:
    folder = cache / "relucert" / "data" / "mnist"
    folder.mkdir(parents=True)
    old, fresh = folder / f".{FIRST}.1-1.tmp", folder / f".{FIRST}.2-2.tmp"
    for path in (old, fresh):
        path.write_bytes(b"half")
    long_ago = time.time() - 2 * files.ABANDONED
    os.utime(old, (long_ago, long_ago))
    data.load("mnist", "test")
    assert sorted(folder.iterdir()) == sorted([fresh, *(folder / name for name in MNIST_FILES)])


def test_the_library_prints_nothing(mnist: Mirror, capfd: pytest.CaptureFixture[str]) -> None:
    data.load("mnist", "test")
    assert capfd.readouterr() == ("", "")


def test_data_imports_no_display() -> None:
    program = "import sys, relucert.data; print([name for name in ('rich', 'matplotlib') if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
