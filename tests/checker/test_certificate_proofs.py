"""Proofs of certificates by linear relaxation: all of them hold in exact integers, and changed ones prove nothing."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import relucert
from relucert.bounding.record import Recorder
from relucert.checker.check import Claim, check
from relucert.checker.claim import image_digest
from relucert.checker.document import Proof, Rejected, read
from relucert.checker.packing import pack, unpack
from relucert.checker.rules import rule_bounds
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import RULES, BoundingRule
from relucert.errors import InputError
from relucert.network import Network
from tests.checker.test_relaxation import pooled
from tests.nets import NETWORKS, centres, mlp

REGIONS: dict[str, dict[str, Any]] = {
    "inf": {},
    "2": {"norm": "2"},
    "1": {"norm": "1"},
    "box": {"box": (-1.5, 1.25)},
    "2 in a box": {"norm": "2", "box": (-1.5, 1.25)},
    "1 in a box": {"norm": "1", "box": (-1.5, 1.25)},
    "scale": {"norm": "2", "scale": torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0, 0.25])},
    "1 in a box, scaled": {
        "norm": "1", "box": (-1.5, 1.25), "scale": torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0, 0.25]),
    },
}  # fmt: skip
PROVABLE = (*RULES, "alpha", "lp", "lp-full")
MOSTLY_SLOW = [some if some in RULES else pytest.param(some, marks=pytest.mark.slow) for some in PROVABLE]
Change = Callable[[dict[str, Any], random.Random], None]
TOLERANCE = 0.02  # of the search, where any radius will do


def certified(
    network: Network, folder: Path, count: int = 3, **options: Any
) -> tuple[list[relucert.Certificate], list[Path]]:
    images = centres(network, count).float().double().clamp(-1.5, 1.25)
    answers = relucert.certify(network, images, proofs=folder, **options)
    return list(answers), sorted(folder.iterdir())


def stored(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return document


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize(
    "method",
    [some if some in (*RULES, "alpha") else pytest.param(some, marks=pytest.mark.slow) for some in PROVABLE],
)
@pytest.mark.costly_methods_sampled
def test_every_certificate_passes(method: str, region: str, tmp_path: Path) -> None:
    for number, network in enumerate((mlp(6, 10, 8, 4, seed=1), mlp(6, 8, 8, 8, 8, 4, seed=2))):
        answers, paths = certified(
            network, tmp_path / str(number), 1, method=method, tolerance=TOLERANCE, **REGIONS[region]
        )
        assert len(paths) == len([answer for answer in answers if answer.radius is not None]) > 0
        for path in paths:
            claim = check(path, network)
            assert claim.radius == answers[claim.index].radius
            assert claim.margins is not None
            assert claim.margins[0] == answers[claim.index].label


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", MOSTLY_SLOW)
def test_every_network_passes(method: str, name: str, tmp_path: Path) -> None:
    network = NETWORKS[name]()
    for norm, box in (("inf", None), ("2", (-1.5, 1.25))):
        answers, paths = certified(network, tmp_path / norm, 1, method=method, tolerance=TOLERANCE, norm=norm, box=box)
        assert len(paths) == len([answer for answer in answers if answer.radius is not None]) > 0
        for path in paths:
            assert check(path, network).radius > 0


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", MOSTLY_SLOW)
def test_every_network_passes_as_it_runs(method: str, name: str, tmp_path: Path) -> None:
    """With the noise of float32, which leaves a radius that is smaller; the same radius proves more in real numbers."""
    network = NETWORKS[name]()
    answers, paths = certified(
        network, tmp_path / "float32", 1, method=method, tolerance=TOLERANCE, inference="float32"
    )
    assert len(paths) == len([answer for answer in answers if answer.radius is not None]) > 0
    for path in paths:
        claim = check(path, network)
        assert claim.inference == "float32"
        assert "every evaluation in float32" in str(claim)
        proof = read(path)
        assert isinstance(proof, Proof)
        real = TreeCheck.of(network, replace(proof, inference="real"), proof.relaxation).margins()
        computed = TreeCheck.of(network, proof, proof.relaxation).margins()
        assert all(one <= two for one, two in zip(computed, real, strict=True))
        if network.preactivations:
            assert any(one < two for one, two in zip(computed, real, strict=True))


@pytest.mark.parametrize("by_intervals", [False, True])
@pytest.mark.parametrize("method", ["fast-lin", "crown"])
def test_scopes_of_earlier_files_keep_their_meaning(method: str, by_intervals: bool, tmp_path: Path) -> None:
    """Lines bounded all neurons of the last pre-activations there, also those whose sign intervals tell."""
    network = NETWORKS["image residual"]()
    _, paths = certified(network, tmp_path, 1, method=method)
    document = stored(paths[0])
    assert document["relaxation"]["rules"] == [{"rule": method, "scope": "signs"}]
    document["relaxation"]["rules"] = [{"rule": method, "by_intervals": by_intervals}]
    paths[0].write_bytes(gzip.compress(json.dumps(document).encode()))
    assert check(paths[0], network).radius > 0
    proof = read(paths[0])
    assert isinstance(proof, Proof)
    relaxation = TreeCheck.of(network, proof, proof.relaxation).relaxation
    earlier, now, by_lines = (
        rule_bounds(relaxation, rule, "real")
        for rule in (proof.relaxation.rules[0], BoundingRule(method, "signs"), BoundingRule(method, "all"))
    )
    last = network.preactivations[-1]
    assert earlier[last].lower == by_lines[last].lower
    assert earlier[last].upper == by_lines[last].upper
    assert bool((now[last].unstable == earlier[last].unstable).all())
    assert now[last].lower != earlier[last].lower


def test_layers_that_select_numbers_pass_as_they_run(tmp_path: Path) -> None:
    """A maximum becomes sums and ReLUs, which are charged nothing: no evaluation has them."""
    network = pooled()
    assert any(node.exact for node in network.nodes)
    for method in ("fast-lin", "crown", "alpha"):
        _, paths = certified(network, tmp_path / method, method=method, inference="float32")
        assert paths
        assert all(check(path, network).radius > 0 for path in paths)


@pytest.mark.costly_methods_sampled
@pytest.mark.parametrize("method", PROVABLE)
def test_margins_are_those_of_the_method(method: str, tmp_path: Path) -> None:
    """Also that they are bounds: no point of the region has smaller ones."""
    network = mlp(6, 10, 8, 4, seed=3)
    _, paths = certified(network, tmp_path, method=method)
    exact = network.cast(torch.float64)
    for path in paths:
        proof = read(path)
        assert isinstance(proof, Proof)
        margins = TreeCheck.of(network, proof, proof.relaxation).margins()
        least = torch.tensor([float(margin) for margin in margins], dtype=torch.float64)
        centre = torch.tensor(proof.image, dtype=torch.float64)
        steps = torch.rand(500, len(centre), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
        scores = exact(centre + proof.radius * torch.cat([steps, steps.sign()]))
        assert bool((scores @ torch.tensor(proof.rows, dtype=torch.float64).T >= least - 1e-12).all())
        assert float(least.min()) < 1e-3  # the radius is the largest that the method can prove, nearly


def _raise_slightly(document: dict[str, Any], chance: random.Random) -> None:
    document["radius"] *= 1.001


def _raise_radius(document: dict[str, Any], chance: random.Random) -> None:
    document["radius"] *= 1.01 + chance.random()


def _other_label(document: dict[str, Any], chance: random.Random) -> None:
    document["rows"] = [[-number for number in row] for row in document["rows"]]


def _other_rule(document: dict[str, Any], chance: random.Random) -> None:
    document["relaxation"]["rules"][0]["rule"] = chance.choice(RULES)
    document["radius"] *= 1.001


def _other_order(document: dict[str, Any], chance: random.Random) -> None:
    rule = document["relaxation"]["rules"][0]
    rule["scope"] = "signs" if rule["scope"] == "all" else "all"
    document["radius"] *= 1.002


def _other_offset(document: dict[str, Any], chance: random.Random) -> None:
    document["offsets"][chance.randrange(len(document["offsets"]))] += chance.choice([-1e-3, 1e-3, 1.0])


def _other_norm(document: dict[str, Any], chance: random.Random) -> None:
    document["norm"] = chance.choice([1, 2, "inf"])


def _other_box(document: dict[str, Any], chance: random.Random) -> None:
    size = len(document["image"]["values"])
    document["box"] = chance.choice([None, [[-1.5] * size, [1.25] * size], [[None] * size, [2.0] * size]])


def _other_scale(document: dict[str, Any], chance: random.Random) -> None:
    document["scale"] = [chance.choice([0.0, 0.5, 1.0, 2.0]) for _ in document["image"]["values"]]


def _other_image(document: dict[str, Any], chance: random.Random) -> None:
    values = document["image"]["values"]
    values[chance.randrange(len(values))] += chance.choice([0.01, 20.0])
    document["image"]["sha256"] = image_digest(values)


def _spoilt_image(document: dict[str, Any], chance: random.Random) -> None:
    document["image"]["values"][0] += 1e-9


def _other_network(document: dict[str, Any], chance: random.Random) -> None:
    document["network"]["sha256"] = document["network"]["sha256"][::-1]


def _other_version(document: dict[str, Any], chance: random.Random) -> None:
    document["format"] = "relucert proof 3"


def _missing_key(document: dict[str, Any], chance: random.Random) -> None:
    document.pop(chance.choice(list(document)))


def _odd_number(document: dict[str, Any], chance: random.Random) -> None:
    document[chance.choice(["radius", "norm", "rows", "offsets", "inference", "relaxation"])] = chance.choice(
        [None, "1", -1.0, [], {}, 1e400]
    )


def _trees(document: dict[str, Any]) -> list[dict[str, str]]:
    relaxation = document["relaxation"]
    return [*relaxation["hidden"].values(), *([] if relaxation["rows"] is None else [relaxation["rows"]])]


def _other_slopes(document: dict[str, Any], chance: random.Random) -> None:
    """Of everything that has slopes, and a larger radius."""
    for trees in _trees(document):
        slopes = unpack(trees["slopes"], 3)
        slopes[:] = [chance.randrange(2**20 + 1) for _ in slopes]
        trees["slopes"] = pack(slopes, 3)
    document["radius"] *= 1.001


def _steep_slopes(document: dict[str, Any], chance: random.Random) -> None:
    for trees in _trees(document):
        trees["slopes"] = pack(unpack(trees["slopes"], 3) + 2**20 + 1, 3)


def _cut_short(document: dict[str, Any], chance: random.Random) -> None:
    trees = _trees(document)
    if trees:
        entry, name = chance.choice(trees), chance.choice(["nodes", "slopes", "scales"])
        entry[name] = entry[name][: len(entry[name]) // 8 * 4]


CHANGES: list[Change] = [
    _raise_slightly, _raise_radius, _other_label, _other_rule, _other_order, _other_offset, _other_norm, _other_box,
    _other_scale, _other_image, _spoilt_image, _other_network, _other_version, _missing_key, _odd_number,
    _other_slopes, _steep_slopes, _cut_short,
]  # fmt: skip
NEVER: list[Change] = [_other_label, _spoilt_image, _other_network, _other_version, _missing_key]


@pytest.mark.parametrize(
    "turns", [pytest.param(range(150)), pytest.param(range(150, 2000), marks=pytest.mark.slow)], ids=["150", "1850"]
)
def test_changed_proofs_prove_nothing_false(turns: range, tmp_path: Path) -> None:
    """What is accepted after all is true of many points, and of no radius beyond the minimum distortion."""
    network = mlp(6, 10, 8, 4, seed=1)
    exact = network.cast(torch.float64)
    paths, distortions = [], []
    images = centres(network, 3).float().double().clamp(-1.5, 1.25)
    nearest = {
        norm: [answer.upper for answer in relucert.exact(network, images, norm=norm, box=None)]
        for norm in ("inf", "2", "1")
    }
    for method, norm in (("fast-lin", "inf"), ("crown", "2"), ("interval", "1"), ("alpha", "inf"), ("lp", "1")):
        folder = tmp_path / f"{method}-{norm}"
        certified(network, folder, method=method, norm=norm)
        paths += sorted(folder.iterdir())
        distortions += nearest[norm]
    changed, accepted = tmp_path / "changed.json", 0
    for turn in turns:
        chance = random.Random(turn)
        original = paths[turn % len(paths)]
        document = stored(original)
        change = CHANGES[turn // len(paths) % len(CHANGES)]
        change(document, chance)
        text = json.dumps(document)
        changed.write_text(text[: chance.randrange(len(text))] if chance.random() < 0.1 else text)
        try:
            claim = check(changed, network)
        except Rejected:
            continue
        accepted += 1
        assert change not in NEVER
        if change in (_raise_slightly, _raise_radius, _other_rule, _other_order, _other_slopes):
            distortion = distortions[turn % len(paths)]
            assert distortion is None or claim.radius <= distortion
        _assert_no_point_violates(claim, document["image"]["values"], exact, turn)
    assert 0 < accepted < 0.4 * len(turns)


def _assert_no_point_violates(claim: Claim, image: list[float], exact: Network, seed: int) -> None:
    centre, chance = torch.tensor(image, dtype=torch.float64), torch.Generator().manual_seed(seed)
    steps = torch.randn(300, len(centre), generator=chance, dtype=torch.float64)
    steps[150:] *= torch.rand(150, len(centre), generator=chance, dtype=torch.float64) < 0.3
    steps = steps.sign() if claim.norm == math.inf else steps
    steps = steps / steps.norm(p=claim.norm, dim=1, keepdim=True).clamp(min=1e-9) * claim.radius * (1 - 1e-12)
    points = centre + (steps if claim.scale is None else steps * torch.tensor(claim.scale, dtype=torch.float64))
    if claim.box is not None:
        low, high = (torch.tensor(end, dtype=torch.float64) for end in claim.box)
        points = points.clamp(low, high)
    rows = torch.tensor(claim.rows, dtype=torch.float64)
    assert bool((exact(points) @ rows.T + torch.tensor(claim.offsets, dtype=torch.float64) > 0).all())


def test_another_network_is_rejected(tmp_path: Path) -> None:
    _, (path, *_) = certified(mlp(6, 10, 8, 4, seed=1), tmp_path, method="crown")
    with pytest.raises(Rejected, match="another network"):
        check(path, mlp(6, 10, 8, 4, seed=2))


def test_what_has_no_proof_is_refused_by_name(tmp_path: Path) -> None:
    network, image = mlp(6, 10, 4), torch.zeros(1, 6)
    refused: list[tuple[Network, dict[str, Any], str]] = [
        (network, {"method": "fast-lip"}, "fast-lip"),
        (network, {"norm": "3"}, "norm"),
        (network, {"arithmetic": "float"}, "rigorous"),
    ]
    for asked, options, reason in refused:
        with pytest.raises(InputError, match=reason):
            relucert.certify(asked, image, proofs=tmp_path / "proofs", **options)
    assert not (tmp_path / "proofs").exists()


def test_a_proof_that_is_gone_is_written_again(tmp_path: Path) -> None:
    network, images = relucert.load("mnist-2x20"), relucert.data.bundled().first(2)
    folder, store = tmp_path / "proofs", tmp_path / "a.answers"
    before = relucert.certify(network, images, proofs=folder, store=store)
    first, second = sorted(folder.iterdir())
    first.unlink()
    kept = second.stat().st_mtime_ns
    after = relucert.certify(network, images, proofs=folder, store=store)
    assert [answer.radius for answer in after] == pytest.approx([answer.radius for answer in before], rel=1e-3)
    assert first.exists()
    assert second.stat().st_mtime_ns == kept  # its answer is in the store


def test_a_proof_of_another_question_is_replaced_by_the_run_that_goes_on(tmp_path: Path) -> None:
    network, images = relucert.load("mnist-2x20"), relucert.data.bundled().first(2)
    folder, store = tmp_path / "proofs", tmp_path / "a.answers"
    before = relucert.certify(network, images, proofs=folder, store=store)
    relucert.certify(network, images, proofs=folder, norm=2)
    after = relucert.certify(network, images, proofs=folder, store=store)
    for answer, path in zip(after, sorted(folder.iterdir()), strict=True):
        document = json.loads(gzip.decompress(path.read_bytes()))
        assert (document["norm"], document["radius"]) == ("inf", answer.radius)
    assert [answer.radius for answer in after] == pytest.approx([answer.radius for answer in before], rel=1e-3)


def test_equal_images_have_a_proof_each(tmp_path: Path) -> None:
    network = mlp(4, 8, 8, 3)
    images = centres(network)[:1].repeat(2, 1)
    answers = relucert.certify(network, images, method="alpha", proofs=tmp_path)
    assert len(answers) == len(list(tmp_path.iterdir())) == 2
    assert all(answer.radius for answer in answers)


def test_an_answer_without_its_proof_is_a_failed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "take", lambda *_: None)
    network = mlp(4, 8, 8, 3)
    (answer,) = relucert.certify(network, centres(network)[:1], method="alpha", proofs=tmp_path)
    assert answer.radius is None
    assert answer.failed
    assert "its proof could not be written" in str(answer.reason)


@pytest.mark.parametrize("ask", [relucert.certify, relucert.exact, relucert.robust_at])
def test_proofs_are_not_written_on_clusters(ask: Any, tmp_path: Path) -> None:
    network = mlp(4, 8, 3)
    options = {"proofs": tmp_path} if ask is relucert.certify else {"proof": tmp_path / "proof.json"}
    radius = {"radius": 0.01} if ask is relucert.robust_at else {}
    with pytest.raises(InputError, match="written on this machine"):
        ask(network, centres(network)[:1], ray="auto", **options, **radius)


def test_a_neuron_bounded_by_an_ascent_and_by_a_program_passes(tmp_path: Path) -> None:
    network = mlp(4, 8, 8, 3, seed=3)
    answers = relucert.certify(network, centres(network, 2, seed=1), method="lp-full", proofs=tmp_path)
    assert all(answer.radius for answer in answers)
    for proof in sorted(tmp_path.iterdir()):
        check(proof, network)
