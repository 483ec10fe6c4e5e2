"""What the project promises outside its code: pins, documents that run, a quick --help."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import relucert
from relucert.cli.main import build_parser

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WHEEL = f"relucert-{relucert.__version__}-py3-none-any.whl"
HEAVY = ("torch", "numpy", "scipy", "rich", "matplotlib", "onnx", "onnxruntime", "safetensors", "highspy", "clarabel")


def _blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


def _name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def test_documents_exist() -> None:
    assert len(DOCUMENTS) > 3
    for name in ("LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "constraints.txt"):
        assert (ROOT / name).stat().st_size > 500, name


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_python_in_documents_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(_blocks(document, "python")):
        exec(compile(block, f"{_name(document)}, block {number}", "exec"), names)


def _parse(argv: list[str]) -> None:
    try:
        build_parser().parse_args(argv)
    except SystemExit as ending:  # --help and --version end so
        if ending.code != 0:
            raise


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_commands_in_documents_are_known(document: Path) -> None:
    for block in _blocks(document, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["relucert"]:
                _parse(words[1:])
            elif words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
            elif words[:2] == ["pip", "install"]:
                assert words[2:] in ([".", "-c", "constraints.txt"], ["."], [f"dist/{WHEEL}"]), line
            else:
                assert not words, f"{_name(document)}: nobody checks {line!r}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_in_documents_lead_somewhere(document: Path) -> None:
    text = document.read_text()
    patterns = (r"\]\(([^)#]+)[^)]*\)", r"^\[[^\]]+\]: ([^#\s]+)", r"(?:src|srcset)=\"([^\"]+)\"")
    for link in (link for pattern in patterns for link in re.findall(pattern, text, re.MULTILINE)):
        if not re.match(r"[a-z]+:", link):
            assert (document.parent / link).exists(), link


def _anchors(document: Path) -> set[str]:
    """What links may lead to: headings as the site names them, and public names."""
    text = document.read_text()
    headings = (
        re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    )
    return {re.sub(r"\s+", "-", heading) for heading in headings} | set(re.findall(r"^::: (\S+)$", text, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_anchors_in_documents_exist(document: Path) -> None:
    for page, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text()):
        target = document.parent / page if page else document
        assert target.suffix != ".md" or anchor in _anchors(target), f"{page}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_paths_in_documents_exist(document: Path) -> None:
    for path in re.findall(r"`((?:src|tests|docs|bench|tools)/[^`\s]*)`", document.read_text()):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_names_in_documents_are_where_they_say(document: Path) -> None:
    """`NAME` in `FILE`, also `CLASS.METHOD` in `FILE`: each part is defined there."""
    for name, path in re.findall(r"`([\w.]+)` in `((?:src|tests|bench|tools)/[^`\s]+\.py)`", document.read_text()):
        text = (ROOT / path).read_text()
        for part in name.split("."):
            defined = rf"^ *(?:(?:def|class) {part}\b|{part}(?:: .*)? = )"
            assert re.search(defined, text, re.MULTILINE), f"{part} is not in {path}"


def test_version_is_in_the_changelog() -> None:
    assert metadata.version("relucert") == relucert.__version__
    assert f"\n## [{relucert.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def _pins() -> dict[str, str]:
    """The pins that apply to this Python."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    chosen = [one for one in requirements if one.marker is None or one.marker.evaluate()]
    names = [canonicalize_name(requirement.name) for requirement in chosen]
    assert len(names) == len(set(names)), "two pins for one package"
    return {name: str(requirement.specifier) for name, requirement in zip(names, chosen, strict=True)}


def _present(extra: str) -> list[str]:
    """The extra, if what it asks for is installed; its own requirements are pinned in any case."""
    texts = metadata.requires("relucert") or []
    needed = [Requirement(text) for text in texts if f'extra == "{extra}"' in text or f"extra == '{extra}'" in text]
    assert {canonicalize_name(one.name) for one in needed} <= _pins().keys()
    installed = {canonicalize_name(one.metadata["Name"]) for one in metadata.distributions()}
    return [extra] if {canonicalize_name(one.name) for one in needed} <= installed else []


def test_every_dependency_is_pinned_and_installed_as_pinned() -> None:
    pins = _pins()
    waiting, seen = [("relucert", frozenset({"dev", *_present("docs"), *_present("ray")}))], set[str]()
    while waiting:
        name, extras = waiting.pop()
        for text in metadata.requires(name) or []:
            needed = Requirement(text)
            wanted = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in {*extras, ""})
            package = canonicalize_name(needed.name)
            if wanted and package not in seen:
                seen.add(package)
                public = metadata.version(package).split("+")[0]
                assert pins.get(package) == f"=={public}", package
                waiting.append((package, frozenset(needed.extras)))
    assert {"torch", "numpy", "pytest", "mypy", "jinja2", "setuptools"} <= seen


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from relucert.cli.main import main\n"
        "try:\n"
        "    main(['certify', '--help'])\n"
        "except SystemExit:\n"
        f"    print('loaded:', [name for name in {HEAVY} if name in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.endswith("loaded: []\n")


def test_help_is_quick() -> None:
    command = [str(Path(sys.executable).with_name("relucert")), "--help"]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    assert min(times) < 1


def test_ci_runs_the_tests() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
