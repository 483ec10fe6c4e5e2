"""The page as text: whole, self-contained, and safe whatever a run file says. See also test_browser."""

from __future__ import annotations

import ast
import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relucert.report
from relucert.report import pictures
from relucert.report.charts import bar
from relucert.report.markup import TEMPLATES
from relucert.report.page import page
from relucert.report.reading import RecordedRun, result
from relucert.report.series import Sandwich
from tests.report import runs

VOID = {"meta", "img", "input"}  # elements without an end
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)><!-- \" ' & \x00"


class Outline(HTMLParser):
    """Every element and its attributes; complains about ends that don't match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.waiting: list[str] = []
        self.feed(text)
        self.close()
        assert not self.waiting

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.waiting.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.waiting.pop() == tag

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def _run(rows: list[dict[str, Any]], **head: Any) -> RecordedRun:
    return RecordedRun({**runs.HEAD, "complete": True, **head}, "", tuple(result(row) for row in rows))


@pytest.fixture(scope="module")
def text() -> str:
    return page(_run(runs.invented(30)))


def test_every_part_is_there(text: str) -> None:
    for words in (
        "Certified accuracy against radius", "Methods side by side", "Time against tightness", "Image by image",
        "Adversarial examples", "Where neurons are unstable", "For reproduction", "lp-full: 60 s were not enough",
    ):  # fmt: skip
        assert words in text, words


def test_nothing_is_fetched_and_nothing_runs_inline(text: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src &#39;none&#39;" in policy[1]
    assert "unsafe" not in policy[1]
    for tag, attributes in Outline(text).elements:
        assert tag not in {"link", "iframe", "object", "base", "a"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name != "style"
            assert name not in {"href", "action", "srcset"}
            assert name != "src" or (value or "").startswith("data:image/png;base64,")
    assert not re.search(r"https?:|@import|url\(", text)


def test_accessible(text: str) -> None:
    outline = Outline(text)
    for tag, attributes in outline.elements:
        assert tag != "img" or attributes["alt"]
        assert tag != "th" or attributes["scope"] in {"row", "col"}
        assert tag != "svg" or attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        assert tag != "input" or attributes["aria-label"]
    assert outline.count("caption") == outline.count("table") == 4  # methods, images, neurons of two methods
    assert outline.elements[0] == ("html", {"lang": "en"})


def _evil(rows: list[dict[str, Any]]) -> RecordedRun:
    for row in rows:
        row |= {"method": EVIL, "reason": EVIL}
    head = {
        "network": {"name": EVIL, "layers": EVIL, EVIL: EVIL},
        "options": {EVIL: [EVIL], "target": EVIL},
        "command": EVIL,
        "skipped": {EVIL: EVIL},
        EVIL: EVIL,
    }
    return _run(rows, **head)


def test_markup_is_shown_as_text() -> None:
    plain, evil = Outline(page(_run(runs.invented(2)))), Outline(page(_evil(runs.invented(2))))
    for tag in ("script", "img", "svg", "button"):
        assert evil.count(tag) <= plain.count(tag), tag  # methods of one name count as one
    assert not any(name.startswith("on") for _, attributes in evil.elements for name in attributes)


@settings(max_examples=40)
@given(
    st.recursive(
        st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_whatever_the_head_says(content: Any) -> None:
    head = dict.fromkeys(("network", "options", "command", "versions", "machine", "complete", "skipped"), content)
    Outline(page(_run([runs.certified(0, 0.01)], **head)).encode(errors="replace").decode())


NUMBERS = st.none() | st.sampled_from([0.0, 5e-324, 1e300, "inf"]) | st.floats(0, 1e300)


@given(NUMBERS, NUMBERS, NUMBERS, st.floats(0, 1e300))
def test_whatever_the_numbers_are(radius: Any, distance: Any, value: Any, seconds: float) -> None:
    rows = [
        {**runs.certified(0, 0.1), "radius": radius, "proven": radius is not None},
        runs.attacked(0, distance),
        runs.answer(0, "clever", value=value, sampled=value),
        runs.answer(0, "bab", lower=value, upper=distance, closed=False),
    ]
    Outline(page(_run([{**row, "seconds": seconds} for row in rows])))


def test_markup_is_in_templates_alone_and_what_is_not_escaped_is_our_own() -> None:
    report = Path(str(relucert.report.__file__)).parent
    for path in report.glob("*.py"):
        strings = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        assert [text for text in strings if isinstance(text, str) and re.search(r"</?[a-z]\w*[ >]", text)] == []
    unescaped = [
        used
        for path in (report / "templates").iterdir()
        for used in re.findall(r"\{\{ ([^}]*?) \| safe", path.read_text())
    ]
    assert set(unescaped) == {"'th scope=\"row\"'", "' class=\"sortable\"'", "script", "style"}


@given(st.text())
def test_data_is_no_markup(words: str) -> None:
    import json

    written = TEMPLATES.from_string("{{ content | tojson }}").render(content={words: words + EVIL})
    assert not set("<>&") & set(written)
    assert json.loads(written) == {words: words + EVIL}


HEADINGS = (
    "Certified accuracy against radius",
    "Certified accuracy against radius",
    "Certified accuracy against radius",
    "Estimated accuracy against radius (not certified)",
    "Accuracy under attack against distance",
    "Accuracy against radius, rounding ignored (not certified)",
)


@pytest.mark.parametrize("number", range(6))
def test_each_kind_alone(number: int) -> None:
    """A run of any one command makes a page whose headings suit it, and only proven radii are called certified."""
    rows = runs.invented(3)[number % 5 :: 5]
    if number == 5:
        rows = [{**row, "arithmetic": "float", "proven": False} for row in rows]
    text = page(_run(rows))
    Outline(text)
    titles = re.findall(r"<h3>([^<]*)</h3>", text)
    assert titles[:3] == [HEADINGS[number], "Method", "Image by image"]
    assert ("Certified accuracy" in text) == (number < 3)
    assert "side by side" not in text
    assert "tightness" not in text
    across = "distance" if number == 4 else "radius"
    assert f">{across} (p = \N{INFINITY})</text>" in text
    assert ("mean estimate (not certified)" in text) == (number == 3)
    assert ("a line at" in text) == (number != 4)


def test_headings_of_runs_that_prove_nothing_in_several_ways() -> None:
    text = page(_run([row for row in runs.invented(2) if "distance" in row or "sampled" in row]))
    assert "<h3>Accuracy against radius (not certified)</h3>" in text
    assert "<h3>Methods</h3>" in text
    listed = page(_run([runs.certified(0, 0.1)], options={"target": "all"}))
    assert "<h3>Image by image, rival by rival</h3>" in listed
    assert "an image counts with its weakest rival" in listed


def test_accuracy_says_the_target_that_it_is_about() -> None:
    rows = [runs.certified(0, 0.1), runs.certified(1, 0.2)]
    for target, words in (("untargeted", ""), ("all", ""), ("runner-up", ", against target runner-up alone")):
        text = page(_run(rows, options={"target": target}))
        assert f"<h3>Certified accuracy against radius{words}</h3>" in text
        assert f"half of the images provably keep their class{words}<" in text or target == "all"


def test_failures_are_told() -> None:
    assert "failed inside" not in page(_run(runs.invented(1)))
    spoilt = {**runs.certified(0, None), "failed": True, "reason": "not certified: RuntimeError: no"}
    text = page(_run([spoilt, runs.certified(1, 0.1)]))
    assert "1 answer failed inside their method: fast-lin: not certified: RuntimeError: no" in text


def test_unusual_answers() -> None:
    nothing = {**runs.certified(0, None), "reason": "not certified: no radius could be proven"}
    Outline(page(_run([nothing])))
    everywhere = runs.answer(0, "bab", lower=None, upper=None, closed=True, unreachable=True, proven=True)
    assert "none is valid" in page(_run([everywhere]))
    assert "any distance" in page(_run([{**runs.certified(0, 0.1), "radius": "inf"}]))
    half = runs.answer(0, "bab", lower=0.1, upper=None, closed=False, unreachable=False, proven=True)
    assert "not closed" in page(_run([half]))
    assert "not finished" in page(_run([half], complete=False))
    assert "p = 2<" in page(_run([{**half, "norm": 2.0}]))
    assert page(_run([half, {**half, "norm": 2.0}, {**half, "norm": 2.0000001}])).count("measured with p = ") == 3


def test_a_contradiction_is_loud() -> None:
    assert "Contradiction" in page(_run([runs.certified(5, 0.02), runs.attacked(5, 0.01)]))
    assert "Contradiction" in page(_run([runs.certified(5, 0.02), runs.attacked(5, 0.0)]))
    everywhere = runs.answer(5, "bab", lower=None, upper=None, closed=True, unreachable=True, proven=True)
    assert "Contradiction" in page(_run([everywhere, runs.attacked(5, 0.3)]))
    assert "Contradiction" not in page(_run([everywhere, runs.attacked(5, None)]))
    assert "Contradiction" not in page(_run([runs.certified(5, 0.01), runs.attacked(5, 0.01)]))
    assert "Contradiction" not in page(_run([runs.certified(5, 0.02), runs.attacked(6, 0.01)]))


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (None, "every input valid"),
        ([-0.5, 0.5], "pixels from -0.5 to 0.5"),
        ([[0.0, 0.0], [1.0, 2.0]], "valid range given per coordinate"),
    ],
)
def test_the_valid_inputs_are_told(box: Any, words: str) -> None:
    text = page(_run([{**row, "box": box} for row in runs.invented(2)]))
    assert f" \N{MIDDLE DOT} {words} \N{MIDDLE DOT} relucert " in text
    assert "unlike questions" not in text
    assert '<th scope="col" aria-sort="none"><button type="button">gap</button></th>' in text
    assert "80.0%" in text


def test_a_scale_is_told() -> None:
    assert "perturbations scaled per coordinate" not in page(_run(runs.invented(1)))
    assert "perturbations scaled per coordinate" in page(_run(runs.invented(1), options={"scale": [1.0, 2.0]}))


def test_older_files_set_unlike_questions_side_by_side() -> None:
    text = page(_run(runs.older(runs.invented(2), [-0.5, 0.5])))
    assert (
        "This file sets unlike questions side by side: valid inputs not recorded (fast-lin, lp, clever (estimate)); "
        "pixels from -0.5 to 0.5 (exact, attack (best)). Older versions did not record them"
    ) in text
    assert "valid inputs differ" in text
    assert "80.0%" not in text  # lp's tightness
    assert "100.0%" in text  # the exact answer's, which the attacks may be compared with
    assert "Time against tightness" not in text
    assert "no proof can exceed" not in text


def test_older_files_without_a_box_or_without_attacks_are_as_before() -> None:
    for rows in (runs.older(runs.invented(2), None), runs.older([runs.certified(0, 0.1)], [-0.5, 0.5])):
        assert "unlike questions" not in page(_run(rows))
    assert "valid inputs not recorded" in page(_run(rows))


def test_a_proof_within_a_box_says_nothing_of_examples_beyond() -> None:
    rows = runs.invented(1)
    for row in rows:
        row["box"] = None if "distance" in row else [-0.5, 0.5]
    text = page(_run(rows))
    assert "unlike questions" in text
    assert "none within" not in text


def test_triples_tell_both_radii() -> None:
    text = page(_run(runs.invented(1)))
    assert re.search(r"image 0: distance 0\.1", text)
    assert re.search(r"attack \(best\), none within 0\.0\d+ \(exact\)", text)


def test_size(tmp_path: Path) -> None:
    """A thousand images with five answers each and incompressible pictures."""
    run = runs.read(runs.write(tmp_path / "run.json", runs.invented(1000)))
    assert len(page(run).encode()) < 10e6


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_pictures_are_pngs(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    head, content = pictures.address(shape, pixels.tobytes()).split(",")
    assert head == "data:image/png;base64"
    drawn = matplotlib.image.imread(io.BytesIO(base64.b64decode(content)))
    assert (np.round(drawn * 255) == pixels).all()


def test_bars_are_to_scale() -> None:
    question = Sandwich((result(runs.certified(0, 0.25)), result(runs.attacked(0, 0.5))))
    widths = re.findall(r'width="([^"]*)" height="14" class="(\w+)"', bar(question, 1.0))
    assert widths == [("200", "track"), ("100", "open"), ("50", "proven")]
