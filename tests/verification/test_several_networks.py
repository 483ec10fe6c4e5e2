"""Properties of VNN-LIB 2.0 about several inputs, outputs or networks: all become one network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from relucert import Network, Region, verify
from relucert.arithmetic.rigor import RIGOROUS
from relucert.errors import InputError, RelucertError
from relucert.methods.table import find_method
from relucert.network import Add, Node, Relu
from relucert.verification.specification import version_two
from tests.nets import linear_of, mlp
from tests.verification.networks import as_onnx

pytest.importorskip("vnnlib", reason="VNN-LIB 2.0 needs the package vnnlib")

TWO_INPUTS = """(vnnlib-version <2.0>)
(declare-network N (declare-input A real [1, 2]) (declare-input B real [1, 1])
  (declare-output Y real [1, 2]) (declare-output Z real [1, 1]))
(assert (and (>= A[0,0] 0.0) (<= A[0,0] 1.0) (>= A[0,1] 0.0) (<= A[0,1] 1.0) (>= B[0,0] -1.0) (<= B[0,0] 1.0)))
"""
SAME = """(vnnlib-version <2.0>)
(declare-network N (declare-input X real [1, 2]) (declare-output Y real [1, 2]))
(declare-network M ({0} N) (declare-input U real [1, 2]) (declare-output V real [1, 2]))
(assert (and (>= X[0,0] 0.0) (<= X[0,0] 1.0) (>= X[0,1] 0.0) (<= X[0,1] 1.0)))
(assert (and (>= U[0,0] 0.0) (<= U[0,0] 1.0) (>= U[0,1] 0.0) (<= U[0,1] 1.0)))
"""


@pytest.fixture
def two_inputs(tmp_path: Path) -> Path:
    """From A and B to Y = relu(A) - B and Z = relu(B)."""
    zero = numpy_helper.from_array(np.ones((1, 2), dtype=np.float32), "row")
    nodes = [
        helper.make_node("Relu", ["A"], ["rectified"]),
        helper.make_node("MatMul", ["B", "row"], ["both"]),
        helper.make_node("Sub", ["rectified", "both"], ["Y"]),
        helper.make_node("Relu", ["B"], ["Z"]),
    ]
    sizes = (("A", 2), ("B", 1), ("Y", 2), ("Z", 1))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, size)) for name, size in sizes]
    graph = helper.make_graph(nodes, "graph", values[:2], values[2:], [zero])
    path = tmp_path / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("method", ["interval", "fast-lin", "crown"])
def test_branches_that_never_meet_before_a_relu_are_all_bounded(method: str) -> None:
    """From one input to two ReLUs, neither of which feeds the other."""
    generator = torch.Generator().manual_seed(3)
    one, other, last = (linear_of(inputs, 4, generator, torch.float32) for inputs in (3, 3, 4))
    nodes = (Node(one, (0,)), Node(Relu(), (1,)), Node(other, (0,)), Node(Relu(), (3,)), Node(Add(), (2, 4)))
    network = Network((3,), (*nodes, Node(last, (5,))))
    region = Region.around(torch.zeros(1, 3), 0.5, "inf")
    hidden = find_method(method).hidden(network.cast(torch.float64), region, RIGOROUS)
    assert set(hidden) == {1, 3}
    points = torch.rand(200, 3, generator=generator, dtype=torch.float64) - 0.5
    values = network.cast(torch.float64).values(points)
    for value, (lower, upper) in hidden.items():
        assert bool(((values[value] >= lower) & (values[value] <= upper)).all())


def asked(folder: Path, text: str) -> Path:
    path = folder / "property.vnnlib"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("constraint", "status"),
    [
        ("(<= Y[0,0] -1.5)", "holds"),  # relu(A) - B is at least -1
        ("(<= Y[0,1] -1.0)", "violated"),  # at A = 0 and B = 1
        ("(and (<= Y[0,0] -0.5) (<= Z[0,0] 0.25))", "holds"),  # B at least 1/2, and at most 1/4
        ("(and (<= Y[0,0] -0.125) (<= Z[0,0] 0.25))", "violated"),
        ("(<= (+ Z[0,0] A[0,1]) (- B[0,0] 0.5))", "holds"),
    ],
)
def test_several_inputs_and_outputs(two_inputs: Path, constraint: str, status: str) -> None:
    verdict = verify(two_inputs, asked(two_inputs.parent, f"{TWO_INPUTS}(assert {constraint})"), time_limit=60)
    assert verdict.status == status, verdict
    if verdict.witness is not None:
        assert verdict.witness.shape == (3,)
        assert "onnxruntime" in str(verdict.reason)


def test_a_network_that_is_equal_to_another(tmp_path: Path) -> None:
    network = as_onnx(mlp(2, 6, 2, seed=4), tmp_path / "network.onnx")
    equal = SAME.format("equal-to")
    close = "(assert (and (<= (- X[0,0] U[0,0]) 0.0) (<= (- U[0,0] X[0,0]) 0.0) (== X[0,1] U[0,1])))"
    apart = "(assert (>= (- Y[0,0] V[0,0]) 0.001))"
    assert verify(network, asked(tmp_path, equal + apart), time_limit=60).status == "violated"
    assert verify(network, asked(tmp_path, equal + close + apart), time_limit=1).status != "violated"
    with pytest.raises(InputError, match="proof is about one network"):
        verify(network, asked(tmp_path, equal + apart), proof=tmp_path / "proof.json")


def test_networks_of_one_shape(tmp_path: Path) -> None:
    one, other = (as_onnx(mlp(2, 6, 2, seed=seed), tmp_path / f"{seed}.onnx") for seed in (4, 5))
    query = asked(tmp_path, SAME.format("isomorphic-to") + "(assert (>= (+ Y[0,0] V[0,1]) -100.0))")
    verdict = verify({"N": one, "M": other}, query)
    assert verdict.status == "violated"
    assert verdict.witness is not None
    assert verdict.outputs is not None
    inputs, outputs = verdict.witness.float(), []
    for seed, part in ((4, inputs[:2]), (5, inputs[2:])):
        outputs.append(mlp(2, 6, 2, seed=seed)(part[None])[0])
    assert torch.allclose(verdict.outputs, torch.cat(outputs), atol=1e-5)
    with pytest.raises(InputError, match="the networks N, M"):
        verify(one, query)
    with pytest.raises(InputError, match="the networks N, M"):
        verify({"N": one, "K": other}, query)


@pytest.mark.parametrize("network", ["mnist-2x20", mlp(3, 2, 2)])
def test_what_is_no_onnx_file_is_refused(network: object, tmp_path: Path) -> None:
    with pytest.raises(RelucertError, match=r"onnx|ONNX"):
        verify(network, asked(tmp_path, TWO_INPUTS + "(assert (<= Y[0,0] -1.5))"))  # type: ignore[arg-type]


def test_files_with_other_shapes_are_refused(two_inputs: Path) -> None:
    text = TWO_INPUTS.replace("B real [1, 1]", "B real [1, 2]") + "(assert (<= Y[0,0] -1.5))"
    with pytest.raises(InputError, match=r"B\[0,1\] has no lower bound"):
        verify(two_inputs, asked(two_inputs.parent, text))
    with pytest.raises(RelucertError, match="declares"):
        verify(two_inputs, asked(two_inputs.parent, text + "(assert (== B[0,1] 0.0))"))


def test_files_of_old_versions_are_joined(tmp_path: Path) -> None:
    """As those of ACAS Xu: every stored tensor is an input, too, and slices are attributes."""
    path = as_onnx(mlp(2, 6, 2, seed=4), tmp_path / "network.onnx")
    model = onnx.load(path)
    model.ir_version = 3
    model.opset_import[0].version = 8
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    onnx.save(model, path)
    equal = "(assert (and (== X[0,0] U[0,0]) (== X[0,1] U[0,1])))"
    text = SAME.format("equal-to") + equal + "(assert ({} Y[0,0] V[0,0]))"
    assert verify(path, asked(tmp_path, text.format("<")), time_limit=10).status == "holds"
    assert verify(path, asked(tmp_path, text.format("<=")), time_limit=10).status == "violated"


IMPLIED = """(vnnlib-version <2.0>)
(declare-network N (declare-input X real [1, 2]) (declare-output Y real [1, 2]))
(declare-network M (equal-to N) (declare-input U real [1, 2]) (declare-output V real [1, 2]))
(assert (and (>= X[0,0] 0.0) (<= X[0,0] 1.0) (>= X[0,1] 0.0) (<= X[0,1] 1.0)))
"""


def test_inputs_without_bounds_have_those_that_the_assertions_imply() -> None:
    relations = "(assert (== U[0,0] X[0,0])) (assert (<= U[0,1] (+ X[0,1] 2.0))) (assert (>= (* 2.0 U[0,1]) X[0,0]))"
    (violation,) = version_two.parse(IMPLIED + relations + "(assert (<= V[0,0] Y[0,0]))").violations
    assert list(map(str, violation.low)) == ["0", "0", "0", "0"]
    assert list(map(str, violation.high)) == ["1", "1", "1", "3"]
    with pytest.raises(InputError, match=r"unbounded: U\[0,1\] has no upper bound"):
        version_two.parse(IMPLIED + relations.replace("<= U", ">= U") + "(assert (<= V[0,0] Y[0,0]))")
    assert not version_two.parse(IMPLIED + relations + "(assert (and (>= U[0,0] 2.0) (<= V[0,0] 0.0)))").violations
