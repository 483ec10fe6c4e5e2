from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import relucert
from relucert.common.words import counted

SOURCES = sorted(Path(relucert.__file__).parent.rglob("*.py"))
COUNTABLE = (
    "image",
    "answer",
    "result",
    "question",
    "verdict",
    "proof",
    "adversarial example",
    "instance",
    "violation",
)


@pytest.mark.parametrize(
    ("given", "words"),
    [((1, "image"), "1 image"), ((0, "image"), "0 images"), ((2000, "image"), "2,000 images")],
)
def test_counted(given: tuple[int, str], words: str) -> None:
    assert counted(*given) == words


def test_no_text_has_a_number_before_a_fixed_plural() -> None:
    """What is counted may be one: a number and its noun come from `counted`."""
    plural = re.compile(rf" ({'|'.join(COUNTABLE)})s\b(?! another)")  # a file answers another question
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                for number, text in zip(node.values, node.values[1:], strict=False):
                    fixed = isinstance(text, ast.Constant) and plural.match(str(text.value))
                    if fixed and isinstance(number, ast.FormattedValue):
                        found.append(f"{path.name}:{node.lineno}{text.value}")  # type: ignore[attr-defined]
    assert not found
