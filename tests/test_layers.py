"""The layers of the package: which room may import which, no cycles, and a checker that knows no prover."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import is_dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import relucert
from relucert import data
from relucert.answers import certificates, verdicts
from tools import architecture, layers
from tools.architecture import PICTURE, drawn
from tools.layers import LAYERS, level_of, room_imports, room_of

ROOT = Path(__file__).parent.parent
PROVERS = ("bounding", "methods", "search", "branch_and_bound", "attacks", "verification")


imports = cache(layers.imports)


@pytest.fixture(autouse=True)
def sources_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (layers, architecture):
        monkeypatch.setattr(module, "imports", imports)


def test_every_room_has_one_layer() -> None:
    rooms = [room for layer in LAYERS for room in layer.rooms]
    assert len(rooms) == len(set(rooms))
    assert set(rooms) == {room for module in imports() if (room := room_of(module)) is not None}


def test_no_import_goes_up_or_sideways() -> None:
    level = level_of()
    against = [
        f"{module} imports {other}"
        for module, others in imports().items()
        for other in sorted(others)
        if (room := room_of(module)) is not None
        and (above := room_of(other)) is not None
        and room != above
        and level[above] >= level[room]
    ]
    assert not against, "\n".join(against)


def test_rooms_are_acyclic() -> None:
    TopologicalSorter(room_imports()).prepare()  # raises CycleError


def test_modules_are_acyclic() -> None:
    """Imports within functions count: there they save time, and hide no cycle."""
    TopologicalSorter(imports()).prepare()


def test_the_check_of_proofs_loads_no_prover(tmp_path: Path) -> None:
    """The command, on a folder of proofs."""
    relucert.certify("mnist-2x20", data.bundled().first(2), proofs=tmp_path)
    code = (
        "import json, sys\n"
        "from relucert.cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    command = [sys.executable, "-c", code, "check", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    loaded = [module for module in json.loads(shown) if module.startswith("relucert.")]
    assert loaded
    assert not [module for module in loaded if room_of(module) in PROVERS]


def test_a_class_name_says_which_class_it_is() -> None:
    """Who reads or looks for a name finds one class; those of the checker may be named after what they check."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in (ROOT / "src").rglob("*.py"):
        if "checker" not in path.parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(path.stem)
    assert {name: where for name, where in modules.items() if len(where) > 1} == {}


def test_the_picture_is_that_of_the_imports() -> None:
    assert PICTURE.read_text() == drawn(), "run `python -m tools.architecture`"


def test_the_document_has_the_layers() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    (table,) = re.findall(r"^\| room \|.*\n\|[-|]*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rooms = [tuple(re.findall(r"`(\w+)`", row.split("|")[1])) for row in table.splitlines()]
    assert rooms == [layer.rooms for layer in reversed(LAYERS)]


def test_answers_are_frozen() -> None:
    answers = {value for value in vars(certificates).values() if is_dataclass(value)}
    answers |= {value for value in vars(verdicts).values() if is_dataclass(value)}
    assert len(answers) > 5
    assert [answer for answer in answers if not vars(answer)["__dataclass_params__"].frozen] == []
