"""`relucert check` of files and folders, end to end on bundled networks."""

import gzip
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relucert
from relucert.cli.main import main
from relucert.network.fingerprint import fingerprint
from tests.cli.conftest import Command, Outcome, single_line


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three proofs about one network, and one about another."""
    folder = tmp_path_factory.mktemp("written")
    proofs, other = folder / "proofs", folder / "other"
    assert main(("certify", "mnist-2x20", "--images", "3", "--method", "crown", "--proofs", str(proofs))) == 0
    assert main(("certify", "mnist-3x20", "--images", "1", "--proofs", str(other))) == 0
    (path,) = other.iterdir()
    path.rename(proofs / f"other-{path.name}")
    return proofs


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of the four proofs, which a test may change."""
    return shutil.copytree(written, tmp_path / "proofs")


def test_all_files_are_verified(command: Command, folder: Path) -> None:
    ended = command("check", str(folder))
    assert ended.code == 0, ended
    assert "4 of 4 hold" in ended.out
    places = [ended.out.index(name) for name in sorted(path.name for path in folder.iterdir())]
    assert places == sorted(places)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_that_proves_nothing_fails(command: Command, folder: Path, workers: str) -> None:
    first, second, *_ = sorted(folder.iterdir())
    raised = json.loads(gzip.decompress(first.read_bytes()))
    raised["radius"] *= 2
    first.write_bytes(gzip.compress(json.dumps(raised).encode()))
    second.write_bytes(b"{")
    ended = command("check", str(folder), "--workers", workers)
    assert ended.code == 1, ended
    assert "2 of 4 hold" in ended.out
    assert ended.out.count("proves nothing") == 2
    assert "is not proven to be positive" in ended.out


def test_one_network_for_all(command: Command, folder: Path) -> None:
    ended = command("check", str(folder), "--network", "mnist-2x20", "--workers", "1")
    assert ended.code == 1
    assert "3 of 4 hold" in ended.out
    assert "another network" in ended.out


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The proof with something else in it."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    change(document)
    path.write_bytes(gzip.compress(json.dumps(document).encode()))


def alike(command: Command, folder: Path, *options: str) -> list[Outcome]:
    """The first file of a folder, and then the whole folder."""
    return [command("check", str(path), *options) for path in (sorted(folder.iterdir())[0], folder)]


def test_network_and_image_are_named_by_their_sha256(command: Command, folder: Path) -> None:
    network = fingerprint(relucert.load("mnist-2x20"))
    pixels = relucert.data.bundled().images[0].double().numpy()
    image = hashlib.sha256(pixels.astype("<f8").tobytes()).hexdigest()
    for ended in alike(command, folder):
        assert ended.code == 0
        assert f"mnist-2x20, SHA-256 {network}" in ended.out
        assert f"SHA-256 {image}" in ended.out
        (hint,) = [line for line in ended.out.splitlines() if "--network" in line]
        assert "checks that it is about yours" in hint
    for ended in alike(command, folder, "--network", "mnist-2x20"):
        assert f"mnist-2x20, SHA-256 {network}" in ended.out
        assert "--network" not in ended.out


@pytest.mark.parametrize("name", ["{folder}/own.safetensors", "own.safetensors", "own", "./mnist-2x20", "nowhere.onnx"])
def test_a_proof_does_not_choose_the_network_s_file(
    command: Command, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that names a network beside it, about which it holds, is not checked until the user names it, too."""
    monkeypatch.chdir(folder.parent)
    own = folder.parent / "own.safetensors"
    relucert.save(relucert.load("mnist-2x20"), own)
    named = name.format(folder=folder.parent)
    changed(sorted(folder.iterdir())[0], lambda document: document["network"].update(name=named))
    for ended in alike(command, folder):
        assert ended.code == 1, ended
        assert "not checked" in ended.out + ended.err
        assert fingerprint(relucert.load(own)) in ended.out + ended.err
        assert "say which one with --network" in ended.out + ended.err
    one, _ = alike(command, folder, "--network", str(own))
    assert one.code == 0, one


def test_images_are_those_of_their_numbers(command: Command, folder: Path, tmp_path: Path) -> None:
    for ended in alike(command, folder, "--data", "bundled"):
        assert ended.code == 0, ended
        assert "in bundled, checked" in ended.out
        assert "--data" not in ended.out
    images = relucert.data.bundled().images[:3].flip(0).numpy()
    np.save(tmp_path / "flipped.npy", images)
    for ended in alike(command, folder, "--data", str(tmp_path / "flipped.npy")):
        assert ended.code == 1, ended
        assert "image 0 of these is another one" in ended.out + ended.err
    assert "1 of 4 hold" in ended.out  # the one in the middle
    np.save(tmp_path / "none.npy", images[:0])
    single_line(command("check", str(folder), "mnist-2x20", "--data", str(tmp_path / "none.npy")), ["no images"])


def test_a_proof_about_an_image_is_none_of_a_property(command: Command, folder: Path, tmp_path: Path) -> None:
    asked = tmp_path / "asked.vnnlib"
    asked.write_text(relucert.Query.within([0.0], [1.0], [([[1.0]], [0.0])]).vnnlib())
    for ended in alike(command, folder, "--property", str(asked)):
        assert ended.code == 1, ended
        assert "about an image, and not about a property" in ended.out + ended.err


def test_what_is_no_proof_ends_alike(command: Command, folder: Path) -> None:
    sorted(folder.iterdir())[0].write_bytes(b"{")
    for ended in alike(command, folder):
        assert ended.code == 1, ended
        assert "rejected: it is no proof file" in ended.out + ended.err


def test_what_unpacks_to_too_much_ends_alike(command: Command, folder: Path) -> None:
    for ended in alike(command, folder, "--largest", "1K"):
        assert ended.code == 1, ended
        assert "--largest SIZE allows more" in ended.out + ended.err
    for ended in alike(command, folder, "--largest", "1M"):
        assert ended.code == 0, ended


@pytest.mark.parametrize("options", [["--network", "nowhere.onnx"], ["--data", "nowhere.npy"], ["--property", "none"]])
def test_wrong_questions_end_alike(command: Command, folder: Path, options: list[str]) -> None:
    for ended in alike(command, folder, *options):
        single_line(ended, [options[1]])


def test_wrong_usage_is_one_line(command: Command, tmp_path: Path) -> None:
    single_line(command("check", str(tmp_path)), ["no proofs"])
    single_line(command("check", str(tmp_path), "--layout", "nchw"), ["--data"])
    single_line(command("check", str(tmp_path), "--workers", "0"), ["--workers"])
    single_line(command("check", str(tmp_path / "a.json"), "--workers", "2"), ["--workers"])
    single_line(command("check", str(tmp_path / "a.json")), ["no such file"])


def test_a_network_given_twice_is_refused(command: Command, tmp_path: Path) -> None:
    single_line(command("check", str(tmp_path), "mnist-2x20", "--network", "mnist-3x20"), ["given twice"])


def test_an_error_of_the_checker_s_own_is_a_reason(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("weights")

    monkeypatch.setattr("relucert.api.proof_folder.check_claim", fail)
    for ended in alike(command, folder):
        assert ended.code == 1
        assert "not checked: KeyError" in ended.out + ended.err
    assert "0 of 4 hold" in ended.out
