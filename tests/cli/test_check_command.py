"""`relucert check` of a folder, end to end on bundled networks."""

import gzip
import json
from pathlib import Path

import pytest

from relucert import Network
from tests.cli.conftest import Command, single_line


@pytest.fixture
def folder(command: Command, tmp_path: Path) -> Path:
    """Three proofs about one network, and one about another."""
    proofs = tmp_path / "proofs"
    assert command("certify", "mnist-2x20", "--images", "3", "--method", "crown", "--proofs", str(proofs)).code == 0
    other = tmp_path / "other"
    assert command("certify", "mnist-3x20", "--images", "1", "--proofs", str(other)).code == 0
    (path,) = other.iterdir()
    path.rename(proofs / f"other-{path.name}")
    return proofs


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


def test_a_network_that_is_not_there_proves_nothing(command: Command, folder: Path) -> None:
    path = sorted(folder.iterdir())[0]
    lost = json.loads(gzip.decompress(path.read_bytes()))
    lost["network"]["name"] = "nowhere.onnx"
    path.write_bytes(gzip.compress(json.dumps(lost).encode()))
    ended = command("check", str(folder))
    assert ended.code == 1
    assert "3 of 4 hold" in ended.out
    assert "not checked" in ended.out


def test_wrong_usage_is_one_line(command: Command, tmp_path: Path) -> None:
    single_line(command("check", str(tmp_path)), ["no proofs"])
    single_line(command("check", str(tmp_path), "--data", "bundled"), ["--data"])
    single_line(command("check", str(tmp_path), "--workers", "0"), ["--workers"])
    single_line(command("check", str(tmp_path / "a.json"), "--workers", "2"), ["--workers"])


def test_a_network_given_twice_is_refused(command: Command, tmp_path: Path) -> None:
    single_line(command("check", str(tmp_path), "mnist-2x20", "--network", "mnist-3x20"), ["given twice"])


def test_an_error_of_the_checker_s_own_is_a_reason(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, network: Network) -> None:
        raise KeyError("weights")

    monkeypatch.setattr("relucert.checker.folder.check", fail)
    ended = command("check", str(folder))
    assert ended.code == 1
    assert "0 of 4 hold" in ended.out
    assert "not checked: KeyError" in ended.out
