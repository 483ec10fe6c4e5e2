"""The wheel: built from the source archive, installed into an empty environment, it certifies without the sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import relucert

ROOT = Path(__file__).parent.parent
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "site", "build", "dist", "*.egg-info"
)
ARCHIVED = ("Makefile", "constraints.txt", "CHANGELOG.md", "docs/index.md", "tests/nets.py", "tools/notebook.py")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _run(*command: str | Path, folder: Path) -> str:
    ended = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def _build(folder: Path) -> Path:
    """Builds both archives of a copy of the sources; the wheel's path."""
    sources = folder / "sources"
    shutil.copytree(ROOT, sources, ignore=NOT_SOURCE)
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", sources, folder=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    shutil.rmtree(sources)
    return wheel


def _install(wheel: Path, environment: Path) -> Path:
    """Installs the wheel alone; what it depends on is that of this environment. The folder of the new commands."""
    venv.create(environment, with_pip=False)
    commands = environment / "bin"
    pip = (sys.executable, "-m", "pip", "--python", commands / "python", "--disable-pip-version-check")
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=environment)
    (packages,) = environment.glob("lib/python*/site-packages")
    others = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    (packages / "others.pth").write_text("\n".join(others))  # whose own .pth files, an editable relucert, don't count
    return commands


def _package_files() -> set[str]:
    """Everything that stands beside the modules: networks, images, style, script, published numbers."""
    paths = (ROOT / "src" / "relucert").rglob("*")
    return {str(path.relative_to(ROOT / "src")) for path in paths if path.is_file() and path.suffix != ".pyc"}


@pytest.mark.skipif(os.name != "posix", reason="the commands of an environment are elsewhere on this system")
@pytest.mark.skipif(find_spec("build") is None, reason="the package build is not here: make test installs it")
@pytest.mark.skipif(find_spec("pip") is None, reason="there is no pip to install the wheel with")
def test_a_wheel_in_an_empty_environment_certifies(tmp_path: Path) -> None:
    wheel = _build(tmp_path)
    with tarfile.open(wheel.with_name(f"relucert-{relucert.__version__}.tar.gz")) as archive:
        assert {f"relucert-{relucert.__version__}/{name}" for name in ARCHIVED} <= set(archive.getnames())
    with zipfile.ZipFile(wheel) as packed:
        assert _package_files() <= set(packed.namelist())
    commands = _install(wheel, tmp_path / "environment")
    home = _run(commands / "python", "-c", "import relucert; print(relucert.__file__)", folder=tmp_path)
    assert Path(home).is_relative_to(tmp_path / "environment")
    _run(commands / "relucert", "certify", "--images", "3", "--json", "run.json", "--quiet", folder=tmp_path)
    results = json.loads((tmp_path / "run.json").read_text())["results"]
    assert len(results) == 3
    assert all(result["proven"] and result["radius"] > 0 for result in results)
    _run(commands / "relucert", "report", "run.json", "-o", "report.html", folder=tmp_path)  # style and script
    assert "</html>" in (tmp_path / "report.html").read_text()
