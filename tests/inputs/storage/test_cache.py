from __future__ import annotations

from pathlib import Path

import pytest

from relucert.errors import InputError
from relucert.inputs.storage.files import cache_directory


def test_the_place_the_user_chose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory("data") == tmp_path / "relucert" / "data"
    assert cache_directory("networks") == tmp_path / "relucert" / "networks"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [None, "", "relative/folder"])
def test_the_home_folder_otherwise(value: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_directory("data") == tmp_path / ".cache" / "relucert" / "data"


def test_nobody_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(InputError, match="XDG_CACHE_HOME"):
        cache_directory("data")
