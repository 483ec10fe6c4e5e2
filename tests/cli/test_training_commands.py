"""`relucert train` and `relucert zoo`, on a data set small enough to learn in a moment."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import relucert
from relucert.cli.main import main
from relucert.inputs.loading import zoo
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
    assert (network.input_range, network.picture_shape) == ((-0.5, 0.5), (1, 28, 28))
    about = zoo.about("mnist-2x12")
    recipe = json.loads(about["recipe"])
    assert (recipe["epochs"], recipe["batch"], recipe["seed"], recipe["defence"]) == (12, 20, 0, None)
    assert json.loads(about["versions"])["torch"] == torch.__version__
    assert recipe["data"]["name"] == "mnist"
    assert recipe["data"]["images"] == 300
    assert len(recipe["data"]["sha256"]) == 16


@pytest.mark.parametrize(
    ("defence", "expected"),
    [
        (["distillation", "--temperature", "20"], {"name": "distillation", "temperature": 20.0}),
        (
            ["adversarial", "--epsilon", "0.1", "--steps", "2"],
            {"name": "adversarial", "epsilon": 0.1, "steps": 2, "warm_up": 0.5, "box": [-0.5, 0.5]},
        ),
        (
            [
                "certified",
                "--epsilon",
                "0.01",
                "--norm",
                "inf",
                "--warm-up",
                "0",
                "--bounds",
                "fast-lin",
                "--clean",
                "0",
            ],
            {
                "name": "certified",
                "epsilon": 0.01,
                "norm": "inf",
                "warm_up": 0.0,
                "bounds": "fast-lin",
                "clean": 0.0,
                "stretch": 1.0,
                "box": [-0.5, 0.5],
            },
        ),
    ],
)
def test_defences_reach_the_recipe(data: str, tmp_path: Path, defence: list[str], expected: dict[str, object]) -> None:
    output, record = tmp_path / "network.safetensors", tmp_path / "record.json"
    options = ["--data-dir", data, "--epochs", "2", "--output", str(output), "--json", str(record), "--quiet"]
    assert main(["train", "mnist-2x8", "--defence", *defence, *options]) == 0
    row = json.loads(record.read_text())
    assert row["recipe"]["defence"] == expected
    assert row["versions"]["relucert"] == relucert.__version__
    assert isinstance(row["test_accuracy"], float)
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
    assert (tmp_path / "whole.safetensors").read_bytes() == (tmp_path / "parts.safetensors").read_bytes()


@pytest.mark.parametrize(
    "defence",
    [
        [],
        ["--optimiser", "adam"],
        ["--defence", "distillation"],
        ["--defence", "adversarial", "--steps", "2"],
        ["--defence", "certified"],
    ],
)
def test_one_seed_gives_one_file(data: str, tmp_path: Path, defence: list[str]) -> None:
    """Byte by byte, whatever it is called, and another seed gives another."""
    contents = []
    for number, seed in enumerate(("3", "3", "4")):
        output = tmp_path / f"{number}.safetensors"
        command = ["train", "mnist-2x8", "--data-dir", data, "--epochs", "1", "--seed", seed, *defence, "--quiet"]
        assert main([*command, "--output", str(output)]) == 0
        contents.append(output.read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_a_network_of_another_recipe_is_not_replaced(
    data: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "record.json"
    command = ["train", "mnist-2x8", "--data-dir", data, "--quiet", "--json", str(record), "--epochs"]
    assert main([*command, "1"]) == 0
    (path,) = cache.iterdir()
    before = path.read_bytes(), record.read_bytes()
    assert main([*command, "1"]) == 0
    assert path.read_bytes() == before[0]
    before = path.read_bytes(), record.read_bytes()
    capsys.readouterr()
    for options in (["2"], ["1", "--seed", "1"], ["1", "--half"], ["1", "--learning-rate", "0.01"]):
        assert main([*command, *options]) == 2
        message = capsys.readouterr().err
        assert "a network of another recipe" in message
        assert "--overwrite" in message
        assert (path.read_bytes(), record.read_bytes()) == before
    assert main([*command, "2", "--output", str(tmp_path / "other.safetensors")]) == 2
    assert "record.json holds results of another question" in capsys.readouterr().err
    assert main([*command, "2", "--overwrite"]) == 0
    assert path.read_bytes() != before[0]
    assert json.loads(record.read_text())["recipe"]["epochs"] == 2
    assert json.loads(record.read_text())["seconds"] >= 0
    notes = tmp_path / "notes.safetensors"
    notes.write_text("mine")
    assert main([*command, "2", "--output", str(notes)]) == 2
    assert notes.read_text() == "mine"


def test_a_list_of_networks_replaces_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zoo.json"
    for _ in range(2):
        assert main(["zoo", "--json", str(path)]) == 0
    path.write_text('{"results": [1]}')
    capsys.readouterr()
    assert main(["zoo", "--json", str(path)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["zoo", "--json", str(path), "--overwrite"]) == 0
    assert isinstance(json.loads(path.read_text()), list)


def test_the_grid_takes_the_best_by_validation(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "LEARNING_RATES", (0.1, 1e-6))
    monkeypatch.setattr(build, "WEIGHT_DECAYS", (1e-4, 1e-8))
    output = tmp_path / "network.safetensors"
    options = ["--data-dir", data, "--epochs", "6", "--batch", "20", "--output", str(output), "--quiet"]
    assert main(["train", "mnist-2x12", "--grid", *options]) == 0
    assert "learning rate" in capsys.readouterr().err
    assert json.loads(relucert.inputs.loading.safetensors_file.about(output)["recipe"])["learning_rate"] == 0.1
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("network")) == [output.name]


def test_certified_training_says_what_is_proven(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shares that are printed, recorded and stored are those of `certify` at the radius, in the box."""
    output, record = tmp_path / "network.safetensors", tmp_path / "record.json"
    options = ["--epochs", "12", "--batch", "20", "--optimiser", "adam", "--learning-rate", "0.01", "--stretch", "1.2"]
    files = ["--data-dir", data, "--output", str(output), "--json", str(record)]
    assert main(["train", "mnist-2x12", "--defence", "certified", "--epsilon", "0.02", *options, *files]) == 0
    shown = capsys.readouterr()
    known = json.loads(record.read_text())
    question = "certified at radius 0.02 (p = inf, pixels from -0.5 to 0.5)"
    assert f"{question}: test {100 * known['test_certified']:.2f} %" in shown.out
    assert "proving 60 images at radius 0.02" in shown.err
    assert (
        json.loads(relucert.inputs.loading.safetensors_file.about(output)["test_certified"]) == known["test_certified"]
    )
    test = relucert.data.load("mnist", "test", Path(data))
    answers = relucert.certify(relucert.load(output), test, box=(-0.5, 0.5))
    proven = [answer.radius is not None and answer.radius >= 0.02 for answer in answers]
    assert 0.5 < np.mean(proven) <= known["test_certified"] + 1e-4 < known["test_accuracy"] + 2e-4


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
    assert rows["mnist-2x20"]["test_accuracy"] > 0.955
    assert rows["cifar-7x1024"].keys() == rows["mnist-2x20"].keys()
    assert rows["cifar-7x1024"]["test_accuracy"] is rows["cifar-7x1024"]["layers"] is None
    assert rows["cifar-7x1024"]["state"] == "to be built"
    assert rows["mnist-3x1024-adversarial"]["defence"] == "adversarial"
    for name in rows:
        assert name in shown
    assert rows["mnist-3x1024"]["sha256"][:12] in shown


def test_the_zoo_builds_by_plan(
    data: str, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from relucert.inputs.recipes import plans
    from relucert.inputs.recipes.architectures import FullyConnected
    from relucert.inputs.recipes.recipe import Recipe

    monkeypatch.setitem(plans.PLANS, "tiny", plans.Plan(FullyConnected("mnist", 2, 8), Recipe(epochs=2), half=True))
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
        (["train", "mnist-2x8", "--optimiser", "newton"], "unknown optimiser"),
        (["train", "mnist-2x8", "--defence", "certified", "--bounds", "magic"], "unknown method"),
        (["train", "mnist-2x8", "--defence", "certified", "--clean", "2"], "plain loss"),
        (["train", "mnist-2x8", "--defence", "certified", "--stretch", "0"], "stretch"),
        (["train", "mnist-2x8", "--defence", "adversarial", "--clean", "0.5"], "--clean does not go with"),
        (["train", "cifar-cnn-wide"], "unknown architecture"),
        (["train", "mnist-2x8", "--defence", "certified", "--norm", "0.5"], "p >= 1"),
        (["train", "mnist-2x8", "--learning-rate", "-1"], "learning rate"),
        (["train", "mnist-2x8", "--data-dir", "nowhere"], "nowhere"),
        (["train", "mnist-\u0662x8"], "unknown architecture"),
        (["train", "mnist-2x8", "--epochs", "\u0663"], "whole number"),
        (["train", "mnist-2x8", "--batch", "9" * 20], "batch must be a whole number"),
        (["train", "mnist-2x8", "--temperature", "0"], "needs --defence"),
        (["train", "mnist-2x8", "--defence", "adversarial", "--epsilon", "0"], "epsilon"),
        (["train", "mnist-2x8", "--grid", "--learning-rate", "3"], "--learning-rate does not go with --grid"),
        (["train", "mnist-2x8", "--grid", "--weight-decay", "0"], "--weight-decay does not go with --grid"),
        (["train", "mnist-2x8", "--output", "network.bin"], "must end in .safetensors"),
        (["train", "mnist-2x8", "--output", "network.checkpoint"], "must end in .safetensors"),
        (["train", "mnist-2x8", "--output", "a.safetensors", "--json", "./a.safetensors"], "the same file"),
        (["train", "mnist-2x20"], "comes with the package"),
        (["zoo", "--json", "list.json", "train", "mnist-2x20"], "after train"),
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

    monkeypatch.setattr("relucert.inputs.storage.files.write", full)
    assert main(["train", "mnist-2x8", "--data-dir", data, "--epochs", "1", "--quiet"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert list(cache.iterdir()) == []


class Trial:
    """A short training of a small network into a folder of its own, as a command."""

    def __init__(self, data: str, folder: Path) -> None:
        self.data, self.folder = data, folder
        folder.mkdir()

    def __call__(self, *options: str) -> int:
        output = self.folder / "n.safetensors"
        return main(["train", "mnist-2x8", "--data-dir", self.data, "--epochs", "2", "--output", str(output), *options])

    def interrupted(self, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
        """The same, stopped after its first epoch."""
        with monkeypatch.context() as patch:
            patch.setattr("relucert.cli.training.Board.epoch", _interrupt)
            assert self(*options) == 130

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def trial(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(build, "LEARNING_RATES", (0.1, 0.01))
    monkeypatch.setattr(build, "WEIGHT_DECAYS", (1e-4,))
    return Trial(data, tmp_path / "trial")


def test_quiet_says_nothing_and_else_a_resumption_and_a_replacement_are_told(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trial("--quiet") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "in the place of" not in shown.out
    trial.interrupted(monkeypatch)
    capsys.readouterr()
    assert trial() == 0
    shown = capsys.readouterr()
    assert "resuming from epoch 2" in shown.err
    assert all(line.strip() for line in shown.err.splitlines())
    assert "in the place of what was there" in shown.out


def test_a_checkpoint_of_other_data_is_refused(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial.interrupted(monkeypatch)
    other = tmp_path / "other"
    other.mkdir()
    for split in ("train", "test"):
        with np.load(Path(trial.data) / f"mnist_{split}.npz") as file:
            np.savez(other / f"mnist_{split}.npz", images=255 - file["images"], labels=file["labels"])
    trial.data = str(other)
    capsys.readouterr()
    assert trial() == 2
    assert "other data" in capsys.readouterr().err


def test_a_diverging_setting_does_not_end_a_search(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "LEARNING_RATES", (1e9, 0.1))
    assert trial("--grid") == 0
    shown = capsys.readouterr().err
    assert "diverged" in shown
    assert "2 of 2: network" in shown
    monkeypatch.setattr(build, "LEARNING_RATES", (1e9, 1e10))
    assert trial("--grid", "--overwrite") == 2
    assert "lower the learning rate" in capsys.readouterr().err


def test_only_its_own_unfinished_work_is_removed(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.interrupted(monkeypatch, "--grid")
    unfinished = trial.files()
    assert len(unfinished) == 1
    assert trial() == 0
    assert trial.files() == sorted([*unfinished, "n.safetensors"])
    (trial.folder / "n.checkpoint").write_text("something else")
    (trial.folder / "n.grid" / ".stale.tmp").touch()
    assert trial("--grid", "--overwrite") == 0
    assert trial.files() == ["n.checkpoint", "n.grid/.stale.tmp", "n.safetensors"]


def test_a_search_goes_on_where_another_one_tidied_up(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    from relucert.cli.training import Board

    original = Board.epoch

    def tidied(board: Board, *told: object) -> None:
        original(board, *told)  # type: ignore[arg-type]
        board.finish()

    monkeypatch.setattr(Board, "epoch", tidied)
    assert trial("--grid") == 0
    assert trial.files() == ["n.safetensors"]


def test_a_damaged_network_does_not_hide_the_others(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.mkdir(parents=True)
    (cache / "broken.safetensors").write_bytes(b"nothing")
    for name, about in {"odd": {"recipe": '{"defence": {}}', "test_accuracy": "good"}, "bare": {}}.items():
        relucert.save(relucert.load("mnist-2x20"), cache / f"{name}.safetensors", about)
    assert main(["zoo", "--json", str(tmp_path / "zoo.json")]) == 0
    rows = {row["name"]: row for row in json.loads((tmp_path / "zoo.json").read_text())}
    assert rows["broken"]["state"] == "damaged"
    assert "mnist-3x20" in capsys.readouterr().out
    for name in ("odd", "bare"):
        assert rows[name]["state"] == "built"
        assert rows[name]["defence"] is rows[name]["test_accuracy"] is None


def test_too_few_images_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        images, labels = np.zeros((9, 28, 28), np.uint8), np.zeros(9, np.uint8)
        np.savez(tmp_path / f"mnist_{split}.npz", images=images, labels=labels)
    assert main(["train", "mnist-2x8", "--data-dir", str(tmp_path)]) == 2
    assert "too few" in capsys.readouterr().err
