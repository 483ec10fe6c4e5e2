"""Smooth activations evaluated in floating point: what is assumed of libraries holds, and is charged."""

import copy
import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn
from torch.nn import functional

import relucert
from relucert.arithmetic.elementary import PROVEN
from relucert.arithmetic.rigor import RIGOROUS
from relucert.bounding.hidden import hidden_bounds
from relucert.bounding.relaxers import CROWN, FAST_LIN
from relucert.checker.activations import smooth_function
from relucert.checker.check import Rejected, check
from relucert.checker.enclosures import BOUND_BITS, Enclosed
from relucert.checker.noise import activation_error
from relucert.common.names import MethodName
from relucert.errors import InputError
from relucert.network import Network, Node, SmoothActivation
from relucert.network.inference import INFERENCES
from relucert.network.rounded_activation import RoundedActivation, evaluated
from tests.inputs.loading.image_models import Function
from tests.smooth import SMOOTH, smooth_network

FLOAT32 = INFERENCES["float32"]
EVALUATED = {name: rounded for name in SMOOTH if (rounded := evaluated(SMOOTH[name], FLOAT32)) is not None}
REFUSED = sorted(set(SMOOTH) - set(EVALUATED))
OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "sigmoid": ("Sigmoid", {}), "tanh": ("Tanh", {}), "erf": ("Erf", {}), "softsign": ("Softsign", {}),
    "softplus": ("Softplus", {}), "exp": ("Exp", {}), "elu": ("Elu", {}),
    "elu with a kink above": ("Elu", {"alpha": 1.7}), "gelu": ("Gelu", {}),
    "gelu by tanh": ("Gelu", {"approximate": "tanh"}),
    "mish": ("Mish", {}), "hard swish": ("HardSwish", {}), "square root": ("Sqrt", {}), "logarithm": ("Log", {}),
    "sine": ("Sin", {}), "cosine": ("Cos", {}),
}  # fmt: skip
FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "softsign": lambda x: x / (1 + x.abs()),
    "silu": lambda x: x * torch.sigmoid(x),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu by tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    "mish": lambda x: x * torch.tanh(functional.softplus(x)),
    "hard swish": lambda x: x * functional.relu6(x + 3) / 6,
}
"""The formulas that are read as one activation."""
POSITIVE = ("square root", "logarithm")


def points(name: str) -> Tensor:
    """Numbers of float32 of all sizes, those next to inflection points and where functions change their formulas."""
    draw = torch.Generator().manual_seed(0)
    parts = [size * torch.randn(20_000, generator=draw) for size in (1e-3, 0.1, 1.0, 5.0, 20.0, 60.0)]
    powers = 10.0 ** torch.linspace(-36, 3.5, 4_000)
    chosen = torch.cat([*parts, powers, -powers, torch.linspace(-20, 20, 40_001)])
    if name in POSITIVE:
        chosen = chosen.abs().clamp(min=1e-36)
    return chosen.clamp(max=87.0) if name == "exp" else chosen


def libraries(name: str) -> dict[str, Callable[[Tensor], Tensor]]:
    evaluations: dict[str, Callable[[Tensor], Tensor]] = {"torch": SMOOTH[name].apply}
    if name == "softplus":
        evaluations["torch"] = functional.softplus
    if name in FORMULAS:
        evaluations["formula"] = FORMULAS[name]
    if name in OPERATORS:
        operator, attributes = OPERATORS[name]
        node = helper.make_node(operator, ["x"], ["y"], **attributes)
        ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, [None]) for end in ("x", "y")]
        graph = helper.make_graph([node], "activation", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.checker.check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        evaluations["onnxruntime"] = lambda x: torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
    return evaluations


@pytest.mark.parametrize("name", EVALUATED)
def test_libraries_are_as_accurate_as_is_assumed(name: str) -> None:
    """On 170,000 numbers; beyond PyTorch's threshold its softplus differs by less than 2.1e-9."""
    single, rounded = points(name), EVALUATED[name]
    assert isinstance(rounded, RoundedActivation)
    exact = single.double()
    true = SMOOTH[name].formula(exact, PROVEN).value
    allowed = rounded.noise(exact, exact, RIGOROUS)
    assert bool(allowed.isfinite().all())
    for library, function in libraries(name).items():
        error = (function(single).double() - true).abs()
        worst = int((error - allowed).argmax())
        assert bool((error <= allowed).all()), f"{library} at {float(exact[worst])}"


@pytest.mark.parametrize("name", EVALUATED)
def test_bounds_charge_the_error_and_the_checker_the_same(name: str) -> None:
    """Images and lines are wider by the noise, and no less; those of the check agree."""
    exact, rounded = SMOOTH[name], EVALUATED[name]
    assert isinstance(rounded, RoundedActivation)
    lower = torch.tensor([0.25, 1.5, 3.0] if name in POSITIVE else [-4.0, -0.5, 1.5], dtype=torch.float64)
    upper, slope = lower + torch.tensor([2.0, 0.5, 1e-4], dtype=torch.float64), torch.full_like(lower, 0.125)
    noise = rounded.noise(lower, upper, RIGOROUS)
    assert bool((noise > 0).all())
    least, largest = (bound(slope, lower, upper, RIGOROUS) for bound in (rounded.least, rounded.largest))
    assert bool((least <= exact.least(slope, lower, upper, RIGOROUS) - noise).all())
    assert bool((largest >= exact.largest(slope, lower, upper, RIGOROUS) + noise).all())
    ends = [[int(number * 2**BOUND_BITS) for number in side.tolist()] for side in (lower, upper)]
    error = activation_error("float32", 4)
    checked = Enclosed(smooth_function(Node(exact, (0,))), ends[0], ends[1], error)
    for sign, bound in ((1, least), (-1, largest)):
        offsets = checked.offsets(slope, sign)
        found = offsets.units.double() * 2.0**-offsets.bits
        assert torch.allclose(found, bound, rtol=0, atol=1e-12)
        plain = Enclosed(checked.function, ends[0], ends[1]).offsets(slope, sign)
        assert bool((sign * (plain.units.double() * 2.0**-plain.bits - found) > 0.99 * noise).all())


@pytest.mark.parametrize("name", EVALUATED)
def test_no_evaluation_leaves_the_bounds(name: str) -> None:
    """Evaluations by PyTorch in float32, whose activations are moved by three more units in the last place."""
    network = smooth_network(activation=SMOOTH[name])
    draw = torch.Generator().manual_seed(2)
    centre, radius = torch.zeros(1, 5, dtype=torch.float64), 0.05
    runs = network.evaluated_in(FLOAT32).cast(torch.float64)
    region = relucert.Region.around(centre, radius, torch.inf)
    inputs = (radius * (2 * torch.rand(500, 5, generator=draw) - 1)).clamp(-radius * 0.999, radius * 0.999)
    values = [inputs]
    for node in network.nodes:
        value = node.operation.apply(values[node.inputs[0]])
        if isinstance(node.operation, SmoothActivation):
            moved = 3 * 2.0**-23 * (torch.rand(value.shape, generator=draw) < 0.5).float()
            value = value * (1 + moved)
        values.append(value)
    for relaxer in (FAST_LIN, CROWN):
        for place, interval in hidden_bounds(runs, region, relaxer, RIGOROUS).items():
            computed = values[place].double()
            assert bool((computed >= interval.lower).all())
            assert bool((computed <= interval.upper).all())


@pytest.mark.parametrize("name", REFUSED)
def test_products_and_quotients_are_refused_by_name(name: str) -> None:
    assert REFUSED == ["cube", "fourth power", "reciprocal", "square"]
    network = smooth_network(activation=SMOOTH[name])
    with pytest.raises(InputError, match=f"{SMOOTH[name].name}.*rounds"):
        relucert.certify(network, torch.zeros(1, 5), method="crown", inference="float32")


def test_real_arithmetic_is_as_before() -> None:
    """A network evaluated in a precision and then in real arithmetic has the activations that it had."""
    network = smooth_network(activation=SMOOTH["silu"])
    back = network.evaluated_in(FLOAT32).evaluated_in(INFERENCES["real"])
    assert [type(node.operation) for node in back.nodes] == [type(node.operation) for node in network.nodes]


def test_what_may_overflow_or_is_not_accurate_is_no_certificate() -> None:
    """e^x beyond 88, sines of large numbers, logarithms next to 0: nothing is assumed there."""
    far = torch.tensor([2.0**14], dtype=torch.float64)
    for name, point in (("exp", 100.0), ("sine", 2.0**14), ("logarithm", 1e-38), ("square root", 0.0)):
        rounded = EVALUATED[name]
        assert isinstance(rounded, RoundedActivation)
        assert not rounded.noise(torch.full_like(far, point), torch.full_like(far, point), RIGOROUS).isfinite()
        ends = [int(point * 2**BOUND_BITS)]
        if ends[0] or name == "square root":
            with pytest.raises(Rejected, match="overflow, or is not accurate"):
                Enclosed(smooth_function(Node(SMOOTH[name], (0,))), ends, ends, activation_error("float32", 4))


def float_proof(network: Network, folder: Path, method: MethodName) -> dict[str, Any]:
    (answer,) = relucert.certify(
        network, torch.zeros(1, 5), method=method, norm="2", inference="float32", proofs=folder, tolerance=0.01
    )
    assert answer.radius
    (file,) = folder.iterdir()
    claim = check(file, network)
    assert (claim.radius, claim.inference, claim.activation_ulps) == (answer.radius, "float32", 4)
    assert "float32 whose activations are off by at most 4 units in the last place" in str(claim)
    document: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return document


@pytest.mark.parametrize("method", ["interval", "fast-lin", "crown"])
@pytest.mark.parametrize("name", ["tanh", "gelu", "softplus", "elu with a kink above", "exp"])
@pytest.mark.sampled
def test_proofs_pass(name: str, method: MethodName, tmp_path: Path) -> None:
    float_proof(smooth_network(activation=SMOOTH[name]), tmp_path, method)


def test_proofs_say_what_is_assumed(tmp_path: Path) -> None:
    network = smooth_network(activation=SMOOTH["silu"])
    document = float_proof(network, tmp_path / "proofs", "crown")
    changes: dict[str, Callable[[dict[str, Any]], object]] = {
        "does not say what": lambda proof: proof.pop("activation_ulps"),
        "no small number": lambda proof: proof.update(activation_ulps=0),
        "wrong kind": lambda proof: proof.update(activation_ulps="4"),
        "not proven": lambda proof: proof.update(activation_ulps=60_000),
        "another network|nothing is evaluated": lambda proof: proof.update(inference="real"),
    }
    for message, change in changes.items():
        mutated = copy.deepcopy(document)
        change(mutated)
        file = tmp_path / "mutated.json"
        file.write_text(json.dumps(mutated))
        with pytest.raises(Rejected, match=message):
            check(file, network)


def test_modules_are_refused_or_charged_as_they_are_written() -> None:
    """A product of two values is refused; SELU, log-sigmoid and softplus with a slope are charged in their steps."""
    image = torch.full((1, 4), 0.1)
    torch.manual_seed(0)
    for function in (functional.selu, functional.logsigmoid, lambda x: functional.softplus(x, beta=2.0)):
        module = nn.Sequential(nn.Linear(4, 6), Function(function), nn.Linear(6, 3))
        real, float32 = (
            relucert.certify(module, image, method="crown", inference=inference, tolerance=1e-6)[0].radius
            for inference in ("real", "float32")
        )
        assert real is not None
        assert float32 is not None
        assert 0.99 * real < float32 < real
    module = nn.Sequential(nn.Linear(4, 6), Function(lambda x: x[:, :3] * x[:, 3:]), nn.Linear(3, 3))
    with pytest.raises(InputError, match="no runtime evaluates products"):
        relucert.certify(module, image, method="crown", inference="float32")
