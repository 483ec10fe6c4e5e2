"""Runs the example notebook and stores what its cells show: `python -m tools.notebook NOTEBOOK`, or `make notebook`."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]
Cell = dict[str, Any]


def read(path: Path) -> Notebook:
    """A notebook as it is stored."""
    notebook: Notebook = json.loads(path.read_text())
    return notebook


def run(path: Path) -> Notebook:
    """The notebook with the outputs of its cells, run in order in an empty folder; an error in a cell is raised."""
    import matplotlib

    matplotlib.use("agg")
    notebook = read(path)
    names: dict[str, object] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with _empty_folder():
        for number, cell in enumerate(code, 1):
            cell["execution_count"] = number
            cell["outputs"] = list(_outputs("".join(cell["source"]), f"{path.name}, cell {number}", names, number))
    return notebook


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def _outputs(source: str, name: str, names: dict[str, object], number: int) -> Iterator[dict[str, Any]]:
    """What a cell prints, the value of its last line, and the figures it leaves open."""
    from matplotlib import pyplot

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        value = _execute(source, name, names)
    if printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())}
    if value is not None:
        yield {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": _shown(value)}
    for figure in map(pyplot.figure, pyplot.get_fignums()):
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=80, metadata={"Software": None})
        encoded = base64.b64encode(picture.getvalue()).decode()
        yield {"output_type": "display_data", "metadata": {}, "data": {"image/png": encoded}}
    pyplot.close("all")


def _execute(source: str, name: str, names: dict[str, object]) -> object:
    """Runs a cell; the value of its last statement if that is an expression, otherwise None."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    value: object = eval(compile(ast.Expression(last.value), name, "eval"), names)
    return value


def _shown(value: object) -> dict[str, Any]:
    """A value as notebooks show it: as text, and as a table if it has one."""
    table = getattr(value, "_repr_html_", None)
    return {"text/plain": _lines(repr(value))} if table is None else {"text/html": _lines(table())}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def in_markdown(path: Path) -> str:
    """A notebook as Markdown: text, code, and the outputs that are stored in it."""
    return "\n\n".join(part for cell in read(path)["cells"] for part in _parts(cell))


def _parts(cell: Cell) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text")})
        if "image/png" in data:
            yield f'<p><img alt="the figure drawn above" src="data:image/png;base64,{data["image/png"]}"></p>'
        elif "text/html" in data:
            yield "".join(data["text/html"])
        else:
            yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```"


def main() -> None:
    path = Path(sys.argv[1])
    path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + os.linesep)


if __name__ == "__main__":
    main()
