"""Predicted hidden bounds: at the radius that was evaluated they are those of the evaluation."""

import pytest
import torch

from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import DOUBLE, RIGOROUS
from relucert.common.progress import Reporter
from relucert.methods.table import find_method
from relucert.query.problem import Problem
from relucert.search.batch import SearchBatch
from relucert.search.evaluation import Evaluator
from relucert.search.experience import Experience
from relucert.search.prediction import Correction
from relucert.search.radius import Searcher
from tests.nets import NETWORKS, NORMS
from tests.search.test_radius import ask

TOLERANCE = 1e-9  # so small that predictions are in float64


@pytest.mark.parametrize("box", [None, (-9.0, 9.0)])
@pytest.mark.parametrize("method", ["fast-lin", "crown", "fast-lip"])
@pytest.mark.parametrize("name", ["three layers", "five layers", "residual", "convolutional"])
def test_an_evaluation_predicts_itself(name: str, method: str, box: object) -> None:
    network = NETWORKS[name]()
    questions = ask(network, count=3)
    region = Region.around(questions.centres, 0.0, 2, box)
    evaluator = Evaluator(network, find_method(method), RIGOROUS, TOLERANCE)
    problem = Problem(evaluator.network, region, questions.prop)
    radii = torch.tensor([0.02, 0.05, 0.1], dtype=torch.float64)
    evaluation = evaluator.evaluate(problem, radii, DOUBLE)
    start = SearchBatch(evaluator, Experience.none(evaluator.network), Reporter(), problem)
    known = evaluator.told(problem, radii, evaluation, start.model)
    predicted = evaluator.predict(problem, radii[:, None], known, Correction.none(3))[:, 0]
    assert torch.allclose(predicted.amin(1), evaluation.margins.amin(1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["three layers", "five layers", "residual", "convolutional"])
@pytest.mark.sampled
def test_shells_tell_margins_at_smaller_radii(name: str, norm: float) -> None:
    """Bounds hardly bend between the regions of two shells, so that one evaluation tells margins far below it."""
    network = NETWORKS[name]()
    questions = ask(network, count=3)
    evaluator = Evaluator(network, find_method("fast-lip"), RIGOROUS, TOLERANCE)
    problem = Problem(evaluator.network, Region.around(questions.centres, 0.0, norm), questions.prop)
    ends = Searcher(network, find_method("fast-lip"), RIGOROUS, 1e-2).run(problem.region, problem.prop)
    radii = torch.tensor([end.radius for end in sorted(ends, key=lambda end: end.question)], dtype=torch.float64)
    start = SearchBatch(evaluator, Experience.none(evaluator.network), Reporter(), problem)
    known = evaluator.told(problem, 1.2 * radii, evaluator.evaluate(problem, 1.2 * radii, DOUBLE), start.model)
    found = evaluator.evaluate(problem, radii, DOUBLE).margins.amin(1)
    predicted = evaluator.predict(problem, radii[:, None], known, Correction.none(3))[:, 0].amin(1)
    assert bool(((predicted - found).abs() < 0.02 * start.margin).all())


def test_what_was_learnt_survives_being_written() -> None:
    network = NETWORKS["three layers"]()
    questions = ask(network)
    searcher = Searcher(network, find_method("fast-lin"), RIGOROUS, 1e-4)
    nothing = searcher.experience
    list(searcher.run(Region.around(questions.centres, 0.0, 2), questions.prop))
    taught = searcher.experience
    assert taught != nothing
    searcher.recall(nothing)
    assert searcher.experience == nothing
    searcher.recall(taught)
    assert searcher.experience == taught
    searcher.recall("[[[1, 1.5]], 0.3]")  # an earlier version's
    assert searcher.experience == nothing
