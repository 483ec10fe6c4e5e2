from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relucert.data import catalogue
from tests.data import samples


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cache of the test's own; nothing of the user's is read or written."""
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("RELUCERT_DATA", raising=False)
    return home


@pytest.fixture
def mnist(monkeypatch: pytest.MonkeyPatch) -> Iterator[samples.Mirror]:
    """A server with small MNIST files, which are the originals for the time being."""
    with samples.serving(samples.MNIST_FILES) as mirror:
        monkeypatch.setitem(catalogue.COLLECTIONS, "mnist", mirror.collection("mnist"))
        yield mirror


@pytest.fixture
def cifar10(monkeypatch: pytest.MonkeyPatch) -> Iterator[samples.Mirror]:
    with samples.serving(samples.CIFAR_FILES) as mirror:
        monkeypatch.setitem(catalogue.COLLECTIONS, "cifar10", mirror.collection("cifar10"))
        yield mirror
