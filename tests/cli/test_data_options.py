"""`--data` and `--data-dir`: data sets by name, from a folder or the web, and how it looks when that fails."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from relucert.cli.show import Screen
from relucert.data import catalogue, download
from tests.cli import fake
from tests.cli.conftest import Command, single_line
from tests.data import samples

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture
def library(
    stand_in: Callable[[fake.Library], None], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stand_in(fake.Library())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("RELUCERT_DATA", raising=False)


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[samples.Mirror]:
    with samples.serving(samples.MNIST_FILES) as server:
        monkeypatch.setitem(catalogue.COLLECTIONS, "mnist", server.collection("mnist"))
        yield server


def test_a_folder(command: Command, mirror: samples.Mirror, tmp_path: Path) -> None:
    folder = samples.store(tmp_path / "data", samples.MNIST_FILES)
    record = tmp_path / "run.json"
    outcome = command("certify", "--data", "mnist", "--data-dir", str(folder), "--images", "3", "--json", str(record))
    assert (outcome.code, outcome.err) == (0, "")
    assert "3 of the MNIST test images" in outcome.out
    rows = json.loads(record.read_text())
    assert [row["label"] for row in rows["results"]] == samples.LABELS[:3].tolist()
    assert {name: rows["options"][name] for name in ("data", "data_dir", "images")} == {
        "data": "mnist", "data_dir": str(folder), "images": 3,
    }  # fmt: skip
    assert mirror.asked == []


def test_the_environment_variable(
    command: Command, mirror: samples.Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELUCERT_DATA", str(samples.store(tmp_path, samples.MNIST_FILES)))
    assert "5 of the MNIST test images" in command("certify", "--data", "MNIST").out
    assert "100 of the first 100 MNIST" in command("certify").out
    assert mirror.asked == []


def test_a_download_happens_once(command: Command, mirror: samples.Mirror) -> None:
    for _ in range(2):
        outcome = command("certify", "--data", "mnist")
        assert (outcome.code, outcome.err) == (0, "")
        assert mirror.asked == list(mirror.files)


def test_a_failed_download_is_one_line(command: Command, mirror: samples.Mirror) -> None:
    mirror.fault = "altered"
    single_line(command("certify", "--data", "mnist"), ["SHA-256", "--data-dir", "RELUCERT_DATA"])


def test_an_interrupted_download(
    command: Command, mirror: samples.Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(address: str) -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(download, "_blocks", interrupted)
    outcome = command("certify", "--data", "mnist")
    assert (outcome.code, outcome.err) == (130, "relucert: interrupted\n")
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--data", "mnits"], ["mnits", ".npz", "mnist, cifar10"]),
        (["--data", "cifar10"], ["toy takes 784 numbers", "cifar10 have 3072"]),  # known before any download
        (["--data", "mnist", "--data-dir", "nowhere"], ["nowhere", "no such folder"]),
        (["--data", "mnist", "--data-dir", "."], ["t10k-images-idx3-ubyte[.gz]", "mnist_test.npz"]),
        (["--data-dir", "."], ["--data mnist or cifar10"]),
        (["--data", "own.npz", "--data-dir", "."], ["--data mnist or cifar10"]),
    ],
)
def test_bad_options(
    command: Command, argv: list[str], parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    single_line(command("certify", *argv), parts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("quiet", [False, True])
def test_the_bar_of_a_download(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    screen = Screen(quiet)
    monkeypatch.setattr(screen, "_err", Console(file=shown, force_terminal=True, width=100))
    with screen.downloads() as progress:
        progress("one.gz", 500_000, 2_000_000)
        progress("one.gz", 2_000_000, 2_000_000)
        progress("two.gz", 10, 20)
    for words in ("downloading one.gz", "2.0/2.0 MB", "downloading two.gz", "10/20 bytes"):
        assert (words in shown.getvalue()) is not quiet


def test_pixels(command: Command, mirror: samples.Mirror, tmp_path: Path) -> None:
    folder = samples.store(tmp_path / "data", samples.MNIST_FILES)
    named = ("--data", "mnist", "--data-dir", str(folder), "--images", "3")
    digests = []
    for number, options in enumerate(
        [(*named,), (*named, "--pixels", "-0.5", "0.5"), (*named, "--pixels", "0", "1"), ()]
    ):
        record = tmp_path / f"{number}.json"
        assert command("certify", *options, "--json", str(record)).code == 0
        digests.append(json.loads(record.read_text())["data"]["sha256"])
    assert digests[0] == digests[1] != digests[2]
    own = str(samples.store(tmp_path, {"own.npy": b""}) / "own.npy")
    refused = command("certify", "--data", own, "--pixels", "0", "1")
    single_line(refused)
    assert "--pixels is about mnist, cifar10 and the bundled images" in refused.err
    refused = command("certify", "--pixels", "1", "0")
    single_line(refused)
    assert "larger one" in refused.err
