"""`relucert supports` tells what the readers' own tables have, and replaces nothing else."""

import json
from pathlib import Path

import pytest

from relucert.cli.main import main
from relucert.inputs.loading.onnx_rules import RULES


def test_lists_are_those_of_the_readers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "supports.json"
    for _ in range(2):
        assert main(["supports", "--json", str(path)]) == 0
    shown = capsys.readouterr().out
    assert all(operator in shown for operator in RULES)
    lists = json.loads(path.read_text())
    assert set(lists["onnx_operators"]) == set(RULES)
    assert lists["vnnlib_versions"][0] == "1.0"
    assert {"real", "float32"} <= set(lists["element_types"])
    path.write_text("[]")
    assert main(["supports", "--json", str(path)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert path.read_text() == "[]"
