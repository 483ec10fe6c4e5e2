"""`relucert report`: from a run to a page, and nothing half-done."""

from __future__ import annotations

import csv
import re
import webbrowser
from pathlib import Path
from statistics import fmean

import pytest

from relucert.estimates import weibull
from relucert.report.summary import rounded_down
from tests.cli.conftest import Command, single_line
from tests.report import runs


@pytest.mark.parametrize(
    "arguments",
    [
        ("certify", "--method", "fast-lip", "--target", "all"),
        ("certify", "--arithmetic", "float", "--norm", "2"),
        ("certify", "--target", "7"),
        ("attack", "--method", "fmn", "--steps", "20", "--norm", "1"),
        ("exact", "--target", "runner-up"),
        ("estimate", "--batches", "12", "--samples", "20"),
    ],
)
def test_what_the_commands_record_is_reported(command: Command, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    recorded, written = tmp_path / "run.json", tmp_path / "page.html"
    assert command(*arguments, "--images", "2", "--json", str(recorded), "--quiet").code == 0
    outcome = command("report", str(recorded), "-o", str(written))
    assert (outcome.code, outcome.err) == (0, "")
    assert str(written) in outcome.out
    text = written.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>")
    certified = arguments[0] in ("certify", "exact") and "float" not in arguments
    assert ("Certified accuracy" in text) == certified
    assert ("Adversarial examples" in text) == (arguments[0] in ("attack", "exact"))


def test_table_csv_and_report_of_one_run_agree(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLEVER's value, its mean, and over which images it is; fits fail on some of these."""
    monkeypatch.setattr(weibull, "IMPLAUSIBLE", 0.9)
    recorded, table, written = tmp_path / "run.json", tmp_path / "run.csv", tmp_path / "page.html"
    effort = ("--images", "6", "--batches", "12", "--samples", "20", "--methods", "fast-lin,clever,exact")
    outcome = command("compare", *effort, "--target", "7", "--json", str(recorded), "--csv", str(table))
    assert (outcome.code, outcome.err) == (0, "")
    with table.open() as file:
        rows = list(csv.DictReader(file))
    estimates = [row for row in rows if row["method"] == "clever" and row["value"]]
    assert {row["fitted"] for row in estimates} == {"true", "false"}
    assert all(not row["radius"] for row in rows if row["method"] != "fast-lin")
    mean = rounded_down(fmean(float(row["value"]) for row in estimates))
    (line,) = (line for line in outcome.out.splitlines() if line.startswith("clever"))
    assert line.split()[2:4] == [str(len(estimates)), mean]
    assert "fitted, else the largest sampled gradient counts" in line
    assert command("report", str(recorded), "-o", str(written)).code == 0
    (row,) = re.findall(r"<tr><th[^>]*><span[^>]*>clever.*?</tr>", written.read_text())
    assert f">{mean}<" in row
    assert f">{len(estimates)} of " in row
    assert "fitted, else the largest sampled gradient counts" in row
    for text in (outcome.out, recorded.read_text(), table.read_text(), written.read_text()):
        assert "exact" in text
        assert "branch" not in text


def test_bad_input_is_one_line_and_leaves_nothing(command: Command, tmp_path: Path) -> None:
    good = runs.write(tmp_path / "run.json", [runs.certified(0, 0.01)])
    page = tmp_path / "page.html"
    for content, part in ((b"", "empty"), (good.read_bytes()[:-9], "a part of one"), (b"{}", "no run file")):
        bad = tmp_path / "bad.json"
        bad.write_bytes(content)
        single_line(command("report", str(bad), "-o", str(page)), ["bad.json", part])
        bad.unlink()
    single_line(command("report", str(tmp_path), "-o", str(page)), ["can't read"])
    single_line(command("report", str(tmp_path / "none.json"), "-o", str(page)), ["No such file"])
    single_line(command("report", str(good), "-o", str(good)), ["overwrite"])
    single_line(command("report", str(good), "-o", str(tmp_path / "no" / "page.html")), ["there is no folder"])
    single_line(command("report", str(good), "-o", str(tmp_path)), ["not a regular file"])
    assert list(tmp_path.iterdir()) == [good]


def test_several_files_are_one_page(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = {name: tmp_path / f"{name}.json" for name in ("certify", "attack", "estimate", "exact", "paper")}
    common = ("--images", "2", "--target", "runner-up", "--quiet")
    effort = {"attack": ("--steps", "20"), "estimate": ("--batches", "12", "--samples", "20")}
    for name in ("certify", "attack", "estimate", "exact"):
        assert command(name, *common, *effort.get(name, ()), "--json", str(files[name])).code == 0
    table = ("--networks", "mnist-2x20", "--norms", "inf", "--targets", "random", "--methods", "fast-lin")
    assert command("paper", "toy", "--images", "2", *table, "--json", str(files["paper"]), "--quiet").code == 0
    written = tmp_path / "page.html"
    outcome = command("report", *map(str, files.values()), "-o", str(written))
    assert (outcome.code, outcome.err) == (0, "")
    assert "9 results of 5 files" in outcome.out
    text = written.read_text()
    assert text.count("measured with p = ") == 1  # the four runs are one group
    for words in ("fast-lin", "attack (best)", "clever (estimate)", "exact", "Adversarial examples", "Contradiction"):
        assert (words in text) == (words != "Contradiction"), words
    assert "The paper's table \N{LEFT DOUBLE QUOTATION MARK}toy" in text
    assert "(0.0309)" in text
    alone = command("report", str(files["paper"]), "-o", str(written))
    assert alone.code == 0
    assert "<h1>The paper&#39;s table, computed anew</h1>" in written.read_text()
    single_line(command("report", str(files["attack"]), str(files["attack"]), "-o", str(written)), ["given twice"])


def test_an_old_page_survives_bad_input(command: Command, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    (tmp_path / "page.html").write_text("old")
    single_line(command("report", str(tmp_path / "run.json"), "-o", str(tmp_path / "page.html")))
    assert (tmp_path / "page.html").read_text() == "old"


@pytest.mark.parametrize("works", [True, False, None])
def test_open(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool | None) -> None:
    """Where there is no browser the page is there all the same, and the command says where."""
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        if works is None:
            raise webbrowser.Error("could not locate runnable browser")
        return works

    monkeypatch.setattr(webbrowser, "open", browse)
    good = runs.write(tmp_path / "run.json", [runs.certified(0, 0.01)])
    outcome = command("report", str(good), "-o", str(tmp_path / "page.html"), "--open")
    assert opened == [(tmp_path / "page.html").as_uri()]
    assert (tmp_path / "page.html").exists()
    assert (outcome.code, outcome.err) == (0, "")
    assert (f"there is no browser here: open {tmp_path / 'page.html'}" in outcome.out) == (not works)
