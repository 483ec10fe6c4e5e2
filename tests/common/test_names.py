"""However a name or a number is spelled, it becomes the one that the tables have; what resembles one is suggested."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import relucert
from relucert import Property
from relucert.arithmetic.norm import Norm
from relucert.attacks.witness import AdversarialCheck, AdversarialPoint
from relucert.cli.main import build_parser, main
from relucert.common import names
from relucert.common.checks import parse_memory
from relucert.common.names import Names, parse_norm
from relucert.common.numbers import number_above, number_below
from relucert.errors import InputError
from relucert.network import Linear, Network, Node
from tests.nets import mlp

NETWORK = mlp(4, 3, 3, seed=1)
IMAGES = torch.randn(1, 4, generator=torch.Generator().manual_seed(2)) / 4
TABLES = {name: table for name, table in vars(names).items() if isinstance(table, Names)}
EIGHT = Fraction(8, 255)


@pytest.mark.parametrize("name", TABLES)
def test_spellings_of_one_name_are_one_and_those_of_two_are_two(name: str) -> None:
    table = TABLES[name]
    keys = [names.key(known) for known in table.choices]
    assert len({*keys, *table.aliases}) == len(keys) + len(table.aliases)
    assert set(table.aliases.values()) <= set(table.choices)
    for known in table.choices:
        for spelled in (known, known.upper(), known.replace("-", "_"), known.replace("-", " "), known.replace("-", "")):
            assert table.find(spelled) == known
    for alias, known in table.aliases.items():
        assert names.key(alias) == alias
        assert table.find(alias.title()) == known


@pytest.mark.parametrize(
    ("given", "method"),
    [("CROWN", "crown"), ("fast_lin", "fast-lin"), ("FastLin", "fast-lin"), ("ibp", "interval"), ("IBP", "interval"),
     ("alpha-crown", "alpha"), ("DeepPoly", "crown"), ("deepz", "fast-lin")],
)  # fmt: skip
def test_answers_carry_the_name_of_the_table(given: Any, method: str) -> None:
    (answer,) = relucert.certify(NETWORK, IMAGES, method=given, target="runner_up", norm="L2")
    (named,) = relucert.certify(NETWORK, IMAGES, method=method, target="runner-up", norm=2)  # type: ignore[arg-type]
    assert (answer.method, answer.norm, answer.radius) == (method, 2.0, named.radius)


def test_a_store_is_about_the_same_question_however_it_is_spelled(tmp_path: Path) -> None:
    store = tmp_path / "answers.store"
    relucert.certify(NETWORK, IMAGES, method="crown", target="runner-up", norm=2, inference="float32", store=store)
    before = store.read_bytes()
    spelled: dict[str, Any] = {"method": "Crown", "target": "Runner Up", "norm": "l_2", "inference": "fp32"}
    relucert.certify(NETWORK, IMAGES, **spelled, store=store)
    assert store.read_bytes() == before


@pytest.mark.parametrize(
    ("given", "p"),
    [("l2", 2), ("linf", math.inf), ("L1", 1), ("Linf", math.inf), ("l_2", 2), ("L-inf", math.inf), ("l_1.5", 1.5),
     ("inf", math.inf), ("Infinity", math.inf), ("l\N{INFINITY}", math.inf), (" 2 ", 2), (np.float32(2), 2)],
)  # fmt: skip
def test_norms(given: object, p: float) -> None:
    assert Norm.parse(given) == Norm(p)


@pytest.mark.parametrize("given", ["l", "l0", "-inf", "ll2", "2l", "max", "", "nan", "lnan", True, None, 0.5])
def test_what_is_no_norm(given: object) -> None:
    with pytest.raises(InputError, match="p >= 1 or 'inf'"):
        parse_norm(given)


@pytest.mark.parametrize("given", ["8/255", " 8 / 255", "16/510", "0.8/25.5", EIGHT])
def test_fractions_are_rounded_so_that_the_claim_is_not_weakened(given: str | Fraction) -> None:
    above, below = number_above(given, "it"), number_below(given, "it")
    assert Fraction(below) < EIGHT < Fraction(above)
    assert above == math.nextafter(below, math.inf)


def test_decimals_are_the_numbers_that_python_has() -> None:
    for text in ("0.3", "1e-3", "-0.5", "3"):
        assert number_above(text, "it") == number_below(text, "it") == float(text)


@pytest.mark.parametrize("given", ["8/0", "1/2/3", "eight", "", "/", "nan", "inf", "1/inf", None, True, [1], math.inf])
def test_what_is_no_number(given: Any) -> None:
    with pytest.raises(InputError, match="it is a finite number"):
        number_above(given, "it")


def test_radii_and_boxes_in_python() -> None:
    (verdict,) = relucert.robust_at(NETWORK, IMAGES, radius="8/255", box=("-3/2", Fraction(7, 3)))
    assert Fraction(verdict.radius) > EIGHT
    assert verdict.box is not None
    low, high = verdict.box
    assert low == -1.5
    assert Fraction(float(high)) > Fraction(7, 3)
    assert relucert.robust_at(NETWORK, IMAGES, radius=EIGHT)[0].radius == verdict.radius
    assert relucert.robust_at(NETWORK, IMAGES, radius=np.float32(0.25))[0].radius == 0.25
    assert relucert.Region.around(IMAGES, "8/255", "l2").radius.tolist() == [verdict.radius]
    assert relucert.Certified(epsilon="8/255").epsilon == verdict.radius  # type: ignore[arg-type]
    (estimate,) = relucert.estimate(NETWORK, IMAGES, radius="8/255", batches=2, samples=2)
    assert estimate.sampling_radius == verdict.radius


def test_verdicts_say_the_fraction_that_was_given() -> None:
    verdict, written = (relucert.robust_at(NETWORK, IMAGES, radius=given)[0] for given in ("8 / 255", EIGHT))
    for answer in (verdict, written):
        assert answer.fraction == EIGHT
        assert answer.radius == number_above(EIGHT, "it")
        assert "radius 8/255," in repr(answer)
        assert answer.to_json()["fraction"] == "8/255"
    (plain,) = relucert.robust_at(NETWORK, IMAGES, radius=0.25)
    assert plain.fraction is None
    assert "radius 0.25," in repr(plain)
    assert "fraction" not in plain.to_json()


@pytest.mark.parametrize(("radius", "status"), [(EIGHT, "unknown"), (number_above(EIGHT, "it"), "violated")])
def test_a_violation_lies_within_the_fraction(
    radius: Fraction | float, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not just within the number that it is rounded up to."""
    above = number_above(EIGHT, "it")
    adversarial = Linear(torch.tensor([[-1.0], [0.0]]), torch.tensor([above / 2, 0.0]))
    network, image = Network((1,), (Node(adversarial, (0,)),)), torch.zeros(1, 1)

    def farther(check: AdversarialCheck, centre: Tensor, points: Tensor, prop: Property) -> AdversarialPoint:
        return AdversarialPoint(torch.tensor([above / 1.5]).float(), above)  # as if it were so far away

    monkeypatch.setattr(AdversarialCheck, "nearest", farther)
    assert relucert.robust_at(network, image, [0], radius=radius, time_limit=5)[0].status == status


def test_records_say_the_fraction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "run.json"
    assert main(["verify", "mnist-2x20", "--radius", "1/255", "--images", "2", "--json", str(record)]) == 0
    assert "radius 1/255, norm inf" in capsys.readouterr().out
    written = json.loads(record.read_text())
    assert written["options"]["radius"] == "1/255"
    assert [row["fraction"] for row in written["results"]] == ["1/255", "1/255"]
    assert [row["radius"] for row in written["results"]] == 2 * [number_above("1/255", "it")]


def test_radii_and_boxes_on_the_command_line() -> None:
    parse = build_parser().parse_args
    above = number_above(EIGHT, "it")
    given = parse(["verify", "--radius", "8/255", "--box", "-1/3", "1/3"])
    assert given.radius == "8/255"  # which verdicts say
    assert parse(["verify", "--radius", "0.25"]).radius == 0.25
    assert [Fraction(end) for end in given.box] != [Fraction(-1, 3), Fraction(1, 3)]
    assert Fraction(given.box[0]) < Fraction(-1, 3) < Fraction(1, 3) < Fraction(given.box[1])
    assert parse(["certify", "--at", "8/255", "--box", "-1e-3", "1"]).at == [above]
    assert parse(["train", "mnist-2x20", "--epsilon", "8/255"]).epsilon == above
    assert parse(["estimate", "--radius", "8/255"]).radius == above


def test_names_on_the_command_line() -> None:
    parse = build_parser().parse_args
    given = parse(["certify", "--method", "DeepPoly", "--norm", "L_2", "--target", "runner_up", "--inference", "fp16"])
    assert (given.method, given.norm, given.target, given.inference) == ("crown", "2", "runner-up", "float16")
    assert parse(["certify", "--target", "3", "--norm", "1.23456789"]).norm == "1.23456789"
    assert parse(["compare", "--methods", "ibp,Exact"]).methods == ["interval", "exact"]
    given = parse(["paper", "toy", "--norms", "l2,Linf", "--targets", "runner_up", "--methods", "CROWN"])
    assert (given.norms, given.targets, given.methods) == (["2", "inf"], ["runner-up"], ["crown"])
    given = parse(["train", "mnist-2x20", "--bounds", "IBP", "--norm", "l2", "--optimiser", "Adam"])
    assert (given.bounds, given.norm, given.optimiser) == ("interval", "2", "adam")


@pytest.mark.parametrize(
    ("given", "size"),
    [("2G", 2**31), ("512MB", 2**29), ("1.5GiB", 3 * 2**29), ("1000", 1000), ("1 kb", 1024), (7, 7)],
)
def test_sizes(given: int | str, size: int) -> None:
    assert parse_memory(given) == size
    if isinstance(given, str):
        assert build_parser().parse_args(["certify", "--memory", given]).memory == size
        assert relucert.certify(NETWORK, IMAGES, memory=given)[0].radius is not None


@pytest.mark.parametrize("given", ["", "G", "2X", "0", "-1G", "9999999999T", "1e9", 0, 1.5, None, True])
def test_what_is_no_size(given: Any) -> None:
    with pytest.raises(InputError, match="memory budget"):
        parse_memory(given)


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: relucert.certify(NETWORK, IMAGES, method="crwn"), "crown"),  # type: ignore[arg-type]
        (lambda: relucert.certify(NETWORK, IMAGES, method="deepoly"), "deeppoly"),  # type: ignore[arg-type]
        (lambda: relucert.certify(NETWORK, IMAGES, target="runer-up"), "runner-up"),
        (lambda: relucert.certify(NETWORK, IMAGES, arithmetic="rigourous"), "rigorous"),  # type: ignore[arg-type]
        (lambda: relucert.certify(NETWORK, IMAGES, inference="float23"), "float32"),  # type: ignore[arg-type]
        (lambda: relucert.certify("mnist-2x2", IMAGES), "mnist-2x20"),
        (lambda: relucert.data.load("minst"), "mnist"),
    ],
)
def test_what_was_probably_meant_is_suggested(call: Any, meant: str) -> None:
    with pytest.raises(relucert.RelucertError, match=rf"did you mean '{meant}'\?"):
        call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["certify", "nowhere.onnx", "--method", "crwn"], "did you mean 'crown'"),
        (["certify", "nowhere.onnx", "--norm", "max"], "p >= 1"),
        (["certify", "nowhere.onnx", "--target", "me"], "unknown target"),
        (["certify", "nowhere.onnx", "--inference", "float8"], "unknown inference"),
        (["certify", "nowhere.onnx", "--tolerance", "7"], "the tolerance must be"),
        (["certify", "nowhere.onnx", "--shells", "3"], "has no shells"),
        (["certify", "nowhere.onnx", "--budget", "3"], "has no budget"),
        (["attack", "nowhere.onnx", "--method", "cw", "--norm", "1"], "is for p = 2 or inf"),
        (["exact", "nowhere.onnx", "--norm", "3"], "needs the norm 1, 2 or inf"),
        (["exact", "nowhere.onnx", "--tolerance", "7"], "the tolerance must be"),
        (["verify", "nowhere.onnx", "--radius", "8/0"], "a fraction such as 8/255"),
        (["compare", "nowhere.onnx", "--methods", "crown,clevr"], "did you mean 'clever'"),
        (["certify", "nowhere.onnx", "--metod", "crown"], "did you mean '--method'"),
    ],
)
def test_bad_options_are_told_before_the_network_is_loaded(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert message in capsys.readouterr().err
