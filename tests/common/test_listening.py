"""Bars in notebooks: they appear in the kernel of one, once a run takes its time, and vanish with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import relucert
from relucert.common import listening, terminal
from relucert.common.listening import NotebookBar
from relucert.common.progress import Progress, pace
from relucert.errors import InputError


class Notebook:
    """A stand-in for the parts of IPython that a kernel has; shown: what the one output was, one after the other."""

    def __init__(self, kernel: object) -> None:
        self.shown: list[str] = []
        self.displays = 0
        self.package, self.display_module = ModuleType("IPython"), ModuleType("IPython.display")
        self.package.get_ipython = lambda: SimpleNamespace(kernel=kernel)  # type: ignore[attr-defined]
        self.display_module.display = self.display  # type: ignore[attr-defined]

    def display(self, value: Any, display_id: bool) -> Any:
        assert display_id
        self.displays += 1
        self.update(value)
        return SimpleNamespace(update=self.update)

    def update(self, value: Any) -> None:
        self.shown.append(value._repr_html_())


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Notebook:
    stand_in = Notebook(kernel=getattr(request, "param", "a kernel"))
    monkeypatch.setitem(sys.modules, "IPython", stand_in.package)
    monkeypatch.setitem(sys.modules, "IPython.display", stand_in.display_module)
    monkeypatch.setattr(listening, "PATIENCE", 0.0)
    monkeypatch.setattr(listening, "EVERY", 0.0)
    return stand_in


def test_a_run_shows_one_bar_that_vanishes(notebook: Notebook) -> None:
    data = relucert.data.bundled().first(4)
    relucert.certify("mnist-2x20", data, method="interval", memory=2**18)
    assert notebook.displays == 1
    assert notebook.shown[0].startswith('<progress value="0" max="4">')
    assert any('<progress value="1" max="4">' in text and "s left" in text for text in notebook.shown)
    assert notebook.shown[-1] == ""


def test_a_comparison_shows_one_bar_for_all_methods(notebook: Notebook) -> None:
    relucert.compare("mnist-2x20", relucert.data.bundled().first(3), methods=["interval", "op-norm"])
    assert notebook.displays == 1
    assert [text for text in notebook.shown if 'max="6"' not in text] == [""]
    assert any('value="6"' in text for text in notebook.shown)


def test_a_run_that_fails_leaves_no_bar(notebook: Notebook) -> None:
    bar = NotebookBar()
    bar.tell(Progress(done=0, total=9))
    bar.tell(Progress(done=3, total=9))
    bar.close()
    bar.close()
    assert notebook.shown[-1] == ""
    assert len(notebook.shown) == 3


@pytest.mark.parametrize("notebook", [None], indirect=True)
def test_a_terminal_of_ipython_is_no_notebook(notebook: Notebook) -> None:
    relucert.certify("mnist-2x20", relucert.data.bundled().first(2), method="interval")
    assert notebook.shown == []


def test_short_runs_show_nothing(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PATIENCE", 1e6)
    relucert.certify("mnist-2x20", relucert.data.bundled().first(2), method="interval")
    assert notebook.shown == []


def test_the_pace() -> None:
    assert pace(10, 30, 5) == ", 2/s, about 15 s left"
    assert pace(1, 3, 30) == ", 2/min, about 90 s left"
    assert pace(0, 3, 30) == ""


NETWORK = "mnist-2x20"
ONE = relucert.data.bundled().first(1)
CALLS: dict[str, Callable[..., object]] = {
    **{method: partial(relucert.certify, method=method) for method in ("fast-lin", "alpha", "sdp", "lp", "lp-full")},
    "best": partial(relucert.certify, method="best", budget=3.0),
    "robust_at": partial(relucert.robust_at, radius=0.03),
    "exact": partial(relucert.exact, time_limit=3.0),
    "attack": partial(relucert.attack, steps=10),
    "estimate": partial(relucert.estimate, batches=3, samples=8),
    "compare": partial(relucert.compare, methods=["fast-lin", "alpha"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_tells_how_far_one_answer_is(name: str) -> None:
    """Between the first news and the last, what is said of a single answer changes."""
    seen: list[Progress] = []
    network = "mnist-3x20" if name in ("fast-lin", "compare") else NETWORK  # where one evaluation is not all there is
    CALLS[name](network, ONE, progress=seen.append)
    total = 2 if name == "compare" else 1
    assert {state.total for state in seen} == {total}
    assert [state.done for state in seen] == sorted(state.done or 0 for state in seen)
    assert seen[-1].done == total
    within = [state for state in seen if state.done == 0 and state.stage]
    assert len({state.doing for state in within}) > 1
    assert {state.image for state in within} == {0}
    assert all(str(state.stage) in str(state) for state in within)
    if name in ("alpha", "sdp", "lp-full"):  # the last of which has a single program here
        told = {(state.evaluations, state.part, state.step) for state in within if state.stage == name}
        assert len(told) > (1 if name == "lp-full" else 2)
    if name == "compare":
        assert {state.method for state in within} == {"fast-lin"}


def test_a_query_tells_how_far_it_is() -> None:
    image, rows = ONE.images[0].double(), torch.eye(10)[1:] - torch.eye(10)[0]
    query = relucert.Query.within(image - 0.05, image + 0.05, [(row[None], [0.0]) for row in rows])
    seen: list[Progress] = []
    relucert.verify(NETWORK, query, progress=seen.append)
    assert {(state.done, state.total) for state in seen} == {(0, 1)}
    assert len({state.stage for state in seen}) > 2


def test_workers_tell_as_well() -> None:
    """Of work that takes a second or more, so that there is news."""
    seen: list[Progress] = []
    relucert.certify("mnist-3x20", relucert.data.bundled().first(4), method="lp-full", workers=2, progress=seen.append)
    assert {"alpha", "lp", "lp-full"} & {state.stage for state in seen}


def test_a_notebook_shows_what_one_long_answer_is_at(notebook: Notebook) -> None:
    relucert.certify(NETWORK, ONE, method="alpha")
    assert any("image 0" in text and "alpha" in text and "evaluation" in text for text in notebook.shown)


def test_none_where_none_is_wanted(notebook: Notebook) -> None:
    relucert.certify(NETWORK, ONE, method="alpha", progress=False)
    assert notebook.shown == []


def test_scripts_have_a_bar_if_they_ask(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "EVERY", 0.005)
    relucert.certify(NETWORK, relucert.data.bundled().first(8), method="alpha", progress=True)
    assert "alpha" in capfd.readouterr().err
    relucert.certify(NETWORK, ONE, method="alpha")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", ["alpha", "exact", "robust_at", "attack", "estimate", "compare"])
def test_what_the_users_function_raises_is_left_to_the_user(name: str) -> None:
    """No method takes it for a failure of its own."""

    def broken(state: Progress) -> None:
        if state.stage is not None:
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        CALLS[name](NETWORK, ONE, progress=broken)


@pytest.mark.parametrize("given", [3, "yes"])
def test_what_is_no_function_is_refused(given: object) -> None:
    with pytest.raises(InputError, match="progress is a function to call"):
        relucert.certify(NETWORK, ONE, progress=given)  # type: ignore[arg-type]
