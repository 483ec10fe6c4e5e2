"""`relucert train` and `relucert zoo`, on a data set small enough to learn in a moment."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import relucert
from relucert.cli.main import main
from relucert.loading import zoo
from relucert.training import build, loop


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no data but what a test names."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RELUCERT_DATA", raising=False)
    return tmp_path / "cache" / "relucert" / "networks"


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A folder with an MNIST of 300 and 60 images: digits are bright rows at ten heights."""
    folder = tmp_path / "data"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for split, count in (("train", 300), ("test", 60)):
        labels = np.arange(count, dtype=np.uint8) % 10
        images = generator.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        images[np.arange(count), 2 * labels + 4] = 250
        np.savez(folder / f"mnist_{split}.npz", images=images, labels=labels)
    return str(folder)


def weights(path: Path) -> list[torch.Tensor]:
    return [tensor for node in relucert.load(path).nodes for tensor in node.operation.tensors().values()]


def test_a_trained_network_is_known_by_its_name(data: str, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mnist-2x12", "--data-dir", data, "--epochs", "12", "--batch", "20", "--quiet"]) == 0
    assert "mnist-2x12: test accuracy 100.00 %" in capsys.readouterr().out
    assert [path.name for path in cache.iterdir()] == ["mnist-2x12.safetensors"]
    network = relucert.load("mnist-2x12")
    assert (network.name, network.describe()) == ("mnist-2x12", "784-12-10")
    about = zoo.about("mnist-2x12")
    recipe = json.loads(about["recipe"])
    assert (recipe["epochs"], recipe["batch"], recipe["seed"], recipe["defence"]) == (12, 20, 0, None)
    assert json.loads(about["versions"])["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("defence", "expected"),
    [
        (["distillation", "--temperature", "20"], {"name": "distillation", "temperature": 20.0}),
        (
            ["adversarial", "--epsilon", "0.1", "--steps", "2"],
            {"name": "adversarial", "epsilon": 0.1, "steps": 2, "warm_up": 0.5, "box": [-0.5, 0.5]},
        ),
        (
            ["certified", "--epsilon", "0.01", "--norm", "inf", "--warm-up", "0.3"],
            {"name": "certified", "epsilon": 0.01, "norm": "inf", "warm_up": 0.3},
        ),
    ],
)
def test_defences_reach_the_recipe(data: str, tmp_path: Path, defence: list[str], expected: dict[str, object]) -> None:
    output, record = tmp_path / "network.safetensors", tmp_path / "record.json"
    options = ["--data-dir", data, "--epochs", "2", "--output", str(output), "--json", str(record), "--quiet"]
    assert main(["train", "mnist-2x8", "--defence", *defence, *options]) == 0
    assert json.loads(record.read_text())["recipe"]["defence"] == expected
    assert relucert.load(output).name == "network"


def test_an_interrupted_command_goes_on_to_the_same_weights(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(name: str) -> list[str]:
        output = tmp_path / f"{name}.safetensors"
        return ["train", "mnist-2x8", "--data-dir", data, "--epochs", "4", "--output", str(output), "--quiet"]

    assert main(command("whole")) == 0
    original, told = loop.fit, []

    def interrupted(*arguments, report, **others):  # type: ignore[no-untyped-def]
        def tell(epoch: object) -> None:
            told.append(epoch)
            report(epoch)
            if len(told) == 2:
                raise KeyboardInterrupt

        return original(*arguments, report=tell, **others)

    monkeypatch.setattr(build, "fit", interrupted)
    assert main(command("parts")) == 130
    assert (tmp_path / "parts.checkpoint").exists()
    assert not (tmp_path / "parts.safetensors").exists()
    monkeypatch.setattr(build, "fit", original)
    assert main(command("parts")) == 0
    assert not (tmp_path / "parts.checkpoint").exists()
    pairs = zip(weights(tmp_path / "whole.safetensors"), weights(tmp_path / "parts.safetensors"), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_the_grid_takes_the_best_by_validation(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "LEARNING_RATES", (0.1, 1e-6))
    monkeypatch.setattr(build, "WEIGHT_DECAYS", (1e-4, 1e-8))
    output = tmp_path / "network.safetensors"
    options = ["--data-dir", data, "--epochs", "6", "--batch", "20", "--output", str(output), "--quiet"]
    assert main(["train", "mnist-2x12", "--grid", *options]) == 0
    assert "learning rate" in capsys.readouterr().err
    assert json.loads(relucert.loading.safetensors_file.about(output)["recipe"])["learning_rate"] == 0.1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("network")) == [output.name]


def test_half_precision_weights_are_the_network(data: str, tmp_path: Path) -> None:
    output = tmp_path / "network.safetensors"
    options = ["--data-dir", data, "--epochs", "3", "--half", "--output", str(output), "--quiet"]
    assert main(["train", "mnist-2x8", *options]) == 0
    assert {tensor.dtype for tensor in weights(output)} == {torch.float16}


def test_the_zoo_lists_what_is_there_and_what_could_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listing = tmp_path / "zoo.json"
    assert main(["zoo", "--json", str(listing)]) == 0
    shown = capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads(listing.read_text())}
    assert rows["mnist-2x20"]["state"] == "bundled"
    assert rows["mnist-2x20"]["layers"] == "784-20-10"
    assert float(rows["mnist-2x20"]["test_accuracy"]) > 0.955
    assert rows["cifar-7x1024"]["state"] == "to be built"
    assert rows["mnist-3x1024-adversarial"]["defence"] == "adversarial"
    for name in rows:
        assert name in shown
    assert rows["mnist-3x1024"]["sha256"][:12] in shown


def test_the_zoo_builds_by_plan(
    data: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from relucert.training import zoo as plans
    from relucert.training.architectures import Architecture
    from relucert.training.recipe import Recipe

    monkeypatch.setitem(plans.PLANS, "tiny", plans.Plan(Architecture("mnist", 2, 8), Recipe(epochs=2), half=True))
    with pytest.raises(relucert.RelucertError, match="relucert zoo train tiny"):
        relucert.load("tiny")
    assert main(["zoo", "train", "tiny", "--data-dir", data, "--quiet"]) == 0
    assert relucert.load("tiny").name == "tiny"
    capsys.readouterr()
    assert main(["zoo"]) == 0
    assert "built" in next(line for line in capsys.readouterr().out.splitlines() if "tiny" in line)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "mnist-20"], "unknown architecture"),
        (["train", "mnist-0x20"], "unknown architecture"),
        (["train", "svhn-2x20"], "unknown architecture"),
        (["train", "mnist-2x8", "--epsilon", "0.1"], "needs --defence"),
        (["train", "mnist-2x8", "--defence", "distillation", "--steps", "3"], "does not go with"),
        (["train", "mnist-2x8", "--defence", "luck"], "invalid choice"),
        (["train", "mnist-2x8", "--defence", "certified", "--norm", "0.5"], "p >= 1"),
        (["train", "mnist-2x8", "--learning-rate", "-1"], "learning rate"),
        (["train", "mnist-2x8", "--data-dir", "nowhere"], "nowhere"),
        (["zoo", "train", "resnet"], "no plan"),
        (["zoo", "train", "mnist-2x20"], "comes with the package"),
        (["zoo", "prune"], "invalid choice"),
    ],
)
def test_bad_commands_end_with_one_line(command: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(command)
    except SystemExit as end:
        code = int(end.code or 0)
    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_labels_out_of_range_and_wrong_sizes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        np.savez(
            tmp_path / f"mnist_{split}.npz", images=np.zeros((20, 28, 28), np.uint8), labels=np.full(20, 11, np.uint8)
        )
    assert main(["train", "mnist-2x8", "--data-dir", str(tmp_path)]) == 2
    assert "11" in capsys.readouterr().err


def test_nothing_half_written_is_left_when_the_disk_is_full(
    data: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("relucert.report.files.write", full)
    assert main(["train", "mnist-2x8", "--data-dir", data, "--epochs", "1", "--quiet"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert list(cache.iterdir()) == []
