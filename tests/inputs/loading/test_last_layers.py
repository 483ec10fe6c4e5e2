"""A final softmax, log-softmax or arg max is left out, with a remark; elsewhere it is refused."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto
from torch import Tensor, nn
from torch.nn import functional

from relucert import RemarkWarning
from relucert.cli.main import main
from relucert.errors import MismatchError, UnsupportedError
from relucert.inputs.loading import load, onnx_rules, save, torch_rules
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.operands import Operand
from tests.inputs.loading.onnx_models import model, node, numbers, write

Last = Callable[[Tensor], Tensor]


class Scores(nn.Module):
    """A small network and a function of its scores."""

    def __init__(self, last: Last) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        self.last = last

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.body(images))


def make(last: Last) -> Scores:
    torch.manual_seed(0)
    return Scores(last)


LAST: dict[str, Last] = {
    "module": nn.Softmax(dim=1),
    "log module": nn.LogSoftmax(dim=-1),
    "function": lambda scores: functional.softmax(scores, dim=-1),
    "log function": lambda scores: torch.log_softmax(scores, 1),
    "method": lambda scores: scores.softmax(1),
    "arg max": lambda scores: scores.argmax(1),
    "arg max with its axis": lambda scores: torch.argmax(scores, dim=-1, keepdim=True),
    "both": lambda scores: scores.softmax(1).argmax(1),
    "followed by nothing": lambda scores: nn.Identity()(scores.softmax(1)).flatten(1).contiguous(),
}


@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_last_layer_of_torch_is_left_out(name: str, dtype: torch.dtype) -> None:
    module = make(LAST[name]).to(dtype)
    with pytest.warns(RemarkWarning, match="is left out: it keeps the order") as caught:
        network = load(module)
    assert len(network.remarks) == len(caught) == 1
    images = torch.randn(6, 4, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(network.cast(torch.float64)(images), module.double().body(images))


def test_nothing_is_remarked_where_nothing_is_left_out() -> None:
    assert load(make(lambda scores: scores)).remarks == ()


def test_the_remark_stays_with_a_network_that_is_stored(tmp_path: Path) -> None:
    with pytest.warns(RemarkWarning):
        network = load(make(nn.Softmax(dim=1)))
    assert load(network) is network
    save(network, tmp_path / "scores.safetensors")
    with pytest.warns(RemarkWarning):
        assert load(tmp_path / "scores.safetensors").remarks == network.remarks


ELSEWHERE: dict[str, tuple[Last, str]] = {
    "in the middle": (lambda scores: scores.softmax(1) * 2, "in the middle"),
    "added to the scores": (lambda scores: scores + scores.log_softmax(1), "in the middle"),
    "over the batch": (lambda scores: scores.softmax(0), "along axis 0"),
    "of everything": (lambda scores: scores.argmax().reshape(1, 1), "along axis None"),
    "in another precision": (lambda scores: scores.softmax(1, dtype=torch.float64), "dtype"),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_elsewhere_it_is_refused(name: str) -> None:
    last, reason = ELSEWHERE[name]
    with pytest.raises(UnsupportedError, match=reason):
        load(make(last))


WEIGHT = numbers(4, 3)


def classifier(*operators: str, axis: int | None = 1) -> ModelProto:
    names = ["h", *(f"v{position}" for position in range(len(operators) - 1)), "y"]
    attributes = {} if axis is None else {"axis": axis}
    nodes = [node("Gemm", "x w", "h")]
    for operator, source, result in zip(operators, names, names[1:], strict=False):
        nodes.append(node(operator, source, result, **attributes))
    proto = model(nodes, {"w": WEIGHT})
    if operators[-1] == "ArgMax":
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return proto


@pytest.mark.parametrize("operators", [("Softmax",), ("LogSoftmax",), ("ArgMax",), ("Softmax", "ArgMax")])
@pytest.mark.parametrize("axis", [1, -1])
def test_a_last_node_of_onnx_is_left_out(operators: tuple[str, ...], axis: int, tmp_path: Path) -> None:
    with pytest.warns(RemarkWarning, match=f"the final {' and '.join(operators)} is left out"):
        network = load(write(tmp_path, classifier(*operators, axis=axis)))
    assert [step.operation.name for step in network.nodes] == ["linear"]
    images = numbers(5, 4, seed=3)
    np.testing.assert_allclose(network(torch.from_numpy(images)).numpy(), images @ WEIGHT, rtol=1e-5, atol=1e-5)


def test_the_shape_of_the_last_result_may_be_used(tmp_path: Path) -> None:
    nodes = [
        node("Gemm", "x w", "h"),
        node("Softmax", "h", "p"),
        node("Shape", "p", "s"),
        node("Reshape", "p s"),
    ]
    with pytest.warns(RemarkWarning, match="the final Softmax is left out"):
        network = load(write(tmp_path, model(nodes, {"w": WEIGHT})))
    assert [step.operation.name for step in network.nodes] == ["linear"]


def test_a_node_over_the_batch_or_in_the_middle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="along axis 0"):
        load(write(tmp_path, classifier("ArgMax", axis=None)))
    nodes = [node("Gemm", "x w", "h"), node("Softmax", "h", "p", name="soft"), node("Neg", "p")]
    with pytest.raises(UnsupportedError, match=r"Softmax \(in the middle; only the last .* left out\) at node soft"):
        load(write(tmp_path, model(nodes, {"w": WEIGHT})))


def test_a_faulty_import_before_the_last_layer_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant that moves all scores leaves softmax, log-softmax and arg max as they are: the scores tell."""

    def moved(right: Callable[..., Operand]) -> Callable[..., Operand]:
        def translate(assembly: Assembly, call: object) -> Operand:
            return assembly.add(right(assembly, call), torch.tensor(1.0))

        return translate

    linear, gemm = torch_rules.RULES["linear"], onnx_rules.RULES["Gemm"]
    monkeypatch.setitem(torch_rules.RULES, "linear", torch_rules.TorchRule(moved(linear.translate), linear.arguments))
    monkeypatch.setitem(onnx_rules.RULES, "Gemm", onnx_rules.OnnxRule(moved(gemm.translate)))
    for last in ("module", "log module", "arg max"):
        with pytest.raises(MismatchError):
            load(make(LAST[last]))
    for operator in ("Softmax", "LogSoftmax", "ArgMax"):
        with pytest.raises(MismatchError):
            load(write(tmp_path, classifier(operator)))


def test_the_command_line_shows_the_remark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(classifier("Softmax"), tmp_path / "soft.onnx")
    np.savez(tmp_path / "images.npz", images=numbers(2, 4, seed=5))
    before = list(warnings.filters)
    arguments = ["certify", str(tmp_path / "soft.onnx"), "--data", str(tmp_path / "images.npz"), "--quiet"]
    assert main([*arguments, "--images", "2"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "relucert: note: soft: the final Softmax is left out: it keeps the order of the class scores, "
        "which answers are about"
    ]
    assert list(warnings.filters) == before
