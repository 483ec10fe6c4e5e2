"""Whatever is handed to a public call, what it raises is a RelucertError of one line: never a raw exception."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import relucert
from relucert import data, hardness
from relucert.common.checks import shown
from relucert.errors import InputError, RelucertError
from relucert.execution.execution import Execution, here
from tests.nets import mlp

NETWORK = mlp(4, 3, 3, seed=1)
MODULE = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 3))
IMAGES = torch.randn(2, 4, generator=torch.Generator().manual_seed(2))
LABELS = NETWORK(IMAGES).argmax(1)
RIVALS = ((LABELS + 1) % 3)[:, None]
LOADER = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(IMAGES, LABELS), batch_size=2)
QUESTION: dict[str, Any] = {"network": NETWORK, "images": IMAGES, "labels": LABELS}
BOXED = relucert.Query.within([0] * 4, [1] * 4, [([[1, 0, 0]], [-99])])
REGION = relucert.Region.around(IMAGES, 0.1, "inf")


class Odd:
    """Can be neither counted nor converted, and fails with two lines."""

    def __len__(self) -> int:
        raise RuntimeError("no\nlength")

    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("no\narray")

    def __repr__(self) -> str:
        raise RuntimeError("no\nname")


VALUES: dict[str, Any] = {
    "None": None,
    "a text": "text",
    "an empty text": "",
    "bytes": b"x",
    "a whole number": 3,
    "a negative number": -1,
    "a fraction": 0.5,
    "NaN": math.nan,
    "infinity": math.inf,
    "a truth value": True,
    "a huge number": 10**400,
    "a complex number": 1j,
    "an empty list": [],
    "a list of one": [1],
    "a map": {},
    "an odd object": Odd(),
    "an array of objects": np.array([[None] * 4] * 2, dtype=object),
    "an array with NaN": np.full((2, 4), np.nan),
    "an empty array": np.zeros((0, 4)),
    "an array of words": np.array(["a", "b"]),
    "an array of records": np.zeros(2, dtype=[("a", float)]),
    "an array without axes": np.array(1.0),
    "whole numbers": np.arange(8).reshape(2, 4),
    "a tensor": IMAGES,
    "a sparse tensor": IMAGES.to_sparse(),
    "a tensor without values": IMAGES.to("meta"),
    "a module": MODULE,
    "a class": torch.nn.Linear,
    "a path to nothing": Path("nowhere") / "x.npz",
    "a name with a zero byte": "a\0b",
}
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "certify": (relucert.certify, QUESTION),
    "attack": (relucert.attack, {**QUESTION, "steps": 1, "polish": False}),
    "exact": (relucert.exact, {**QUESTION, "time_limit": 0.05}),
    "verify": (relucert.verify, {"network": NETWORK, "query": BOXED, "time_limit": 0.05}),
    "robust_at": (relucert.robust_at, {**QUESTION, "radius": 0.01, "time_limit": 0.05}),
    "Query.within": (relucert.Query.within, {"low": [0] * 4, "high": [1] * 4, "violations": [([[1, 0, 0]], [0])]}),
    "Query.read": (relucert.Query.read, {"path": "nowhere.vnnlib"}),
    "estimate": (relucert.estimate, {**QUESTION, "batches": 2, "samples": 2}),
    "compare": (relucert.compare, {**QUESTION, "methods": ["interval"]}),
    "bounds": (relucert.bounds, {"network": NETWORK, "region": REGION}),
    "lipschitz": (
        relucert.lipschitz,
        {"network": NETWORK, "region": REGION, "prop": relucert.Property.margins(LABELS, RIVALS, 3)},
    ),
    "load": (relucert.load, {"source": NETWORK}),
    "save": (relucert.save, {"network": NETWORK, "path": "x.safetensors"}),
    "robust_loss": (relucert.robust_loss, {**QUESTION, "radius": 0.1}),
    "live_network": (relucert.live_network, {"module": MODULE}),
    "train": (relucert.train, {"module": MODULE, "loader": LOADER, "epochs": 1}),
    "Region.around": (relucert.Region.around, {"centre": IMAGES, "radius": 0.1, "norm": 2}),
    "Region": (relucert.Region, {"points": IMAGES, "radius": torch.ones(2), "norm": REGION.norm}),
    "Property": (relucert.Property, {"rows": torch.zeros(2, 1, 3), "offsets": torch.zeros(2, 1)}),
    "Property.margins": (relucert.Property.margins, {"labels": LABELS, "rivals": RIVALS, "classes": 3}),
    "Network": (relucert.Network, {"input_shape": (4,), "nodes": NETWORK.nodes}),
    "Adversarial": (relucert.Adversarial, {}),
    "Certified": (relucert.Certified, {}),
    "Distillation": (relucert.Distillation, {}),
    "data.load": (data.load, {"name": "mnist", "directory": "nowhere"}),
    "data.read": (data.read, {"path": "x.npz"}),
    "data.Dataset": (data.Dataset, {"images": IMAGES, "labels": LABELS, "name": "own"}),
    "data.Dataset.first": (lambda count: data.bundled().first(count), {"count": 1}),
    "hardness.from_set_cover": (hardness.from_set_cover, {"universe": [1, 2], "sets": [[1], [2]]}),
    "hardness.greedy_cover": (hardness.greedy_cover, {"universe": [1, 2], "sets": [[1], [2]]}),
    "hardness.minimum_cover": (hardness.minimum_cover, {"universe": [1, 2], "sets": [[1], [2]]}),
}
OWN_CODE = {"progress", "report"}  # what a function of the user's raises is left to the user
KEPT = {("data.load", "directory")}  # without one, a download would start


def parameters(name: str) -> Iterator[str]:
    """Those of a call that may be handed anything."""
    for parameter in inspect.signature(CALLS[name][0]).parameters:
        if (name, parameter) not in KEPT:
            yield parameter


def outcome(name: str, change: dict[str, Any]) -> str | None:
    """What a call raises, as the user would see it, where that is no RelucertError of one line."""
    call, given = CALLS[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(**{**given, **change})
    except RelucertError as error:
        return f"two lines: {error}" if "\n" in str(error) else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", CALLS)
def test_nothing_raw_is_raised(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Execution, "run_with", lambda _, job, items, workers, report: here(job, items, report))
    failures = []
    for parameter in parameters(name):
        for called, value in VALUES.items():
            if parameter in OWN_CODE and callable(value):
                continue
            if complaint := outcome(name, {parameter: value}):
                failures.append(f"{name}({parameter}={called}): {complaint}")
    assert failures == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data.load("imagenet"), "unknown data set 'imagenet'; known are mnist, cifar10"),
        (lambda: data.load("mnist", "validation"), "unknown split 'validation'; known are train, test"),  # type: ignore[arg-type]
        (lambda: data.read(3), "needs the path of a file, not 3"),  # type: ignore[arg-type]
        (lambda: relucert.certify(NETWORK, "mnist"), "an array or a tensor, not 'mnist'"),
        (lambda: relucert.certify(NETWORK, [None]), "not an array of numbers"),  # type: ignore[arg-type]
        (lambda: relucert.certify(None, IMAGES), "not NoneType"),  # type: ignore[arg-type]
        (lambda: relucert.certify("nowhere.onnx", IMAGES), "nowhere.onnx"),
        (lambda: relucert.certify(NETWORK, [[1.0, 2.0], [1.0]]), "all rows alike"),
        (lambda: relucert.certify(NETWORK, IMAGES, method=np.zeros(3)), "unknown method ndarray of float64"),  # type: ignore[arg-type]
        (lambda: relucert.exact(NETWORK, IMAGES[:1], proof=3), "a proof needs the path of a file, not 3"),  # type: ignore[arg-type]
        (lambda: relucert.attack(NETWORK, IMAGES, progress=3), "progress is a function to call, not 3"),  # type: ignore[arg-type]
        (lambda: relucert.compare(NETWORK, IMAGES, methods="lp"), "methods are a list of names"),  # type: ignore[arg-type]
        (lambda: relucert.estimate(NETWORK, IMAGES, batches=10**400), "from 1 to 1000000000"),
    ],
)
def test_what_was_expected_and_what_came(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(RelucertError, match=message) as caught:
        call()
    assert len(str(caught.value)) < 300


def test_values_in_messages_are_short() -> None:
    assert shown(3) == "3"
    assert shown("a\nb") == r"'a\nb'"
    assert shown(torch.zeros(100, 100)) == "Tensor of torch.float32, shape (100, 100)"
    assert shown(Odd()) == "an object of Odd"
    for long in (MODULE, list(range(1000)), "x" * 1000, 10**400):
        assert len(shown(long)) <= 80
        assert "\n" not in shown(long)


def test_errors_are_one_line_whatever_they_quote() -> None:
    assert str(InputError("one\ntwo")) == "one two"
