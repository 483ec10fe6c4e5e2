"""Wrong uses of `load` and `save`: each gives one clear line, and odd but right ones work."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import relucert
from relucert.errors import RelucertError
from relucert.network import Network, Node, Relu

NETWORK = Network((4,), (Node(Relu(), (0,)),), "given")


class Custom(nn.Module):
    """A linear layer and a forward."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.formula = forward

    def forward(self, *images: Tensor) -> Any:
        return self.formula(self.layer, *images)


class NotSetUp(nn.Module):
    def __init__(self) -> None:
        pass


class Locked(nn.Linear):
    """What it has can't be copied."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.lock = threading.Lock()


def failing(layer: nn.Linear, images: Tensor) -> Any:
    raise KeyError("nowhere")


def repeated(layer: nn.Linear, images: Tensor) -> Any:
    while images.max() > 1:
        images = layer(images)
    return images


def hooked(*, fails: bool) -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.register_forward_hook(lambda module, inputs, output: output[9:10, 7] if fails else output * 2)
    layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    return layer


SOURCES: dict[str, tuple[Callable[[], Any], tuple[int, ...] | None, str]] = {
    "a class": (lambda: nn.Linear, None, r"not the class Linear: pass an instance, Linear\(...\)"),
    "a function": (lambda: torch.relu, None, "function relu: call it in the forward"),
    "a list of layers": (lambda: [nn.Linear(4, 3)], None, "not list"),
    "weights": (lambda: nn.Linear(4, 3).state_dict(), None, r"state dictionary.*load_state_dict\(weights\)"),
    "a tensor": (lambda: torch.zeros(2, 2), None, "not Tensor"),
    "bytes": (lambda: b"model.onnx", None, "not bytes"),
    "no values": (lambda: nn.Linear(4, 3, device="meta"), None, "meta device"),
    "lazy": (lambda: nn.LazyLinear(3), (4,), "lazy layers"),
    "complex": (lambda: nn.Linear(4, 3, dtype=torch.complex64), None, "complex64; .* real numbers"),
    "not set up": (NotSetUp, None, r"super\(\).__init__"),
    "not to be copied": (Locked, None, "can't be copied"),
    "no forward": (lambda: nn.ModuleList([nn.Linear(4, 3)]), (4,), "forward"),
    "failing": (lambda: Custom(failing), (4,), r"fails on inputs of shape \(3, 4\): 'nowhere'"),
    "failing, without a shape": (lambda: Custom(failing), None, r"pass input_shape.*fails on inputs of shape \(3, 4\)"),
    "a failing hook": (lambda: hooked(fails=True), (4,), "Linear fails on inputs"),
    "two inputs": (lambda: Custom(lambda layer, first, second: layer(first)), (4,), "missing 1 required"),
    "two outputs": (
        lambda: Custom(lambda layer, images: (layer(images), images)),
        (4,),
        "one tensor .* not a tuple of",
    ),
    "one number": (lambda: Custom(lambda layer, images: layer(images).sum().relu()), (4,), "sum.* at the top level"),
    "a branch on values": (
        lambda: Custom(lambda layer, images: layer(images) if images.sum() > 0 else layer(-images)),
        (4,),
        "must not branch on values",
    ),
    "a loop on values": (lambda: Custom(repeated), (4,), "must not branch on values"),
    "a number of its own": (lambda: Custom(lambda layer, x: layer(x) * float(x.mean())), (4,), "can't be traced"),
    "numpy inside": (
        lambda: Custom(lambda layer, x: torch.from_numpy(layer(x).detach().numpy())),
        (4,),
        "or leave torch",
    ),
    "random": (lambda: Custom(lambda layer, images: layer(images) + torch.rand(4)), (4,), "rand: random"),
    "nothing": (nn.Sequential, (4,), "no operation"),
    "the wrong shape": (lambda: nn.Linear(4, 3), (5,), r"fails on inputs of shape \(3, 5\)"),
    "the batch in the shape": (lambda: nn.Linear(4, 3), (1, 4), "vector of class scores"),
    "whole numbers wanted": (lambda: nn.Embedding(4, 3), (2,), "fails on inputs"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_wrong_sources_are_one_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    source, shape, reason = SOURCES[name]
    with pytest.raises(RelucertError, match=reason) as caught:
        relucert.load(source(), input_shape=shape)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_script_modules_are_refused() -> None:
    for module in (torch.jit.script(nn.Linear(4, 3)), torch.jit.trace(nn.Linear(4, 3), torch.zeros(1, 4))):
        with pytest.raises(RelucertError, match=r"pass the torch\.nn\.Module that it was scripted from"):
            relucert.load(module)


def test_odd_modules_that_are_right(capfd: pytest.CaptureFixture[str]) -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    odd = [tied, hooked(fails=False), nn.Linear(4, 3).half(), nn.DataParallel(nn.Linear(4, 3))]
    odd += [torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))]
    odd += [torch.compile(nn.Linear(4, 3), backend="eager")]  # type: ignore[list-item]
    for module in odd:
        assert relucert.load(module).sizes[0] == 4
    sizes: Any = (np.int64(4),)
    assert relucert.load(nn.Linear(4, 3), input_shape=sizes).input_shape == (4,)
    assert capfd.readouterr() == ("", "")


def contents(folder: Path) -> dict[str, tuple[str, str]]:
    """Files that are no networks: their names, and what is said about each."""
    relucert.save(NETWORK, folder / "whole.safetensors")
    whole = (folder / "whole.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.onnx").touch()
    (folder / "empty.safetensors").touch()
    (folder / "text.txt").write_text("hello")
    (folder / "folder").mkdir()
    np.savez(folder / "arrays.npz", weight=np.zeros(2))
    save_file({"weight": torch.zeros(2, 2)}, folder / "weights.safetensors")
    return {
        "cut.safetensors": ("cut", "no whole safetensors file"),
        "empty.onnx": ("empty", "is empty"),
        "empty.safetensors": ("empty", "is empty"),
        "text.txt": ("text", "neither an .onnx nor"),
        "folder": ("folder", "is a directory"),
        "arrays.npz": ("arrays", "has NumPy arrays but no network"),
        "weights.safetensors": ("weights", "has weights but no network"),
        "none.pt": ("missing", "there is no file"),
        "none.txt": ("missing", "there is no file"),
        "none/network": ("missing", "there is no file"),
    }


def test_wrong_files_are_one_line(tmp_path: Path) -> None:
    for name, (_, reason) in contents(tmp_path).items():
        with pytest.raises(RelucertError, match=reason) as caught:
            relucert.load(tmp_path / name)
        assert "\n" not in str(caught.value)


SAVES: dict[str, tuple[tuple[Any, ...], str]] = {
    "a module alone": ((nn.Linear(4, 3),), r"relucert.save\(relucert.load\(module\), 'model.safetensors'\)"),
    "a module": ((nn.Linear(4, 3), "a.safetensors"), r"relucert.save\(relucert.load\(module\)"),
    "no path": ((NETWORK,), "needs a path"),
    "a number": ((NETWORK, 5), "needs a path that ends in .safetensors, not 5"),
    "bytes": ((NETWORK, b"a.safetensors"), "needs a path"),
    "no such path": ((NETWORK, "a\0b.safetensors"), "needs a path"),
    "swapped": (("a.safetensors", NETWORK), "not the object str"),
    "a class": ((Network, "a.safetensors"), "not the class Network"),
    "weights": ((nn.Linear(4, 3).state_dict(), "a.safetensors"), "takes a network"),
    "another suffix": ((NETWORK, "a.onnx"), "must end in .safetensors"),
    "no suffix": ((NETWORK, ""), "must end in .safetensors"),
    "no folder": ((NETWORK, "nowhere/a.safetensors"), "can't write"),
    "a long name": ((NETWORK, f"{'a' * 300}.safetensors"), "can't write"),
    "about a number": ((NETWORK, "a.safetensors", 5), "map strings to strings"),
    "about numbers": ((NETWORK, "a.safetensors", {"accuracy": 0.9}), "map strings to strings"),
    "about in no alphabet": ((NETWORK, "a.safetensors", {"note": "\udcff"}), "map strings to strings"),
}


@pytest.mark.parametrize("name", SAVES)
def test_wrong_saves_are_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, reason = SAVES[name]
    save: Any = relucert.save
    with pytest.raises(RelucertError, match=reason) as caught:
        save(*arguments)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
