"""Bars in notebooks: they appear in the kernel of one, once a run takes its time, and vanish with it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import relucert
from relucert.execution import progress
from relucert.execution.progress import NotebookBar, pace


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
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.0)
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
    bar.tell(0, 9)
    bar.tell(3, 9)
    bar.close()
    bar.close()
    assert notebook.shown[-1] == ""
    assert len(notebook.shown) == 3


@pytest.mark.parametrize("notebook", [None], indirect=True)
def test_a_terminal_of_ipython_is_no_notebook(notebook: Notebook) -> None:
    relucert.certify("mnist-2x20", relucert.data.bundled().first(2), method="interval")
    assert notebook.shown == []


def test_short_runs_show_nothing(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 1e6)
    relucert.certify("mnist-2x20", relucert.data.bundled().first(2), method="interval")
    assert notebook.shown == []


def test_the_pace() -> None:
    assert pace(10, 30, 5) == ", 2/s, about 15 s left"
    assert pace(1, 3, 30) == ", 2/min, about 90 s left"
    assert pace(0, 3, 30) == ""
