"""Hooks of the site's build. A warning fails it: the build is strict."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tools.notebook import in_markdown
from tools.public_names import complaints

LOG = logging.getLogger("mkdocs.hooks.relucert")  # whose warnings MkDocs counts
NOTEBOOK = "<!-- the notebook stands here -->"


def on_pre_build(config: Any) -> None:
    """Warns about every public name that is not documented."""
    for complaint in complaints():
        LOG.warning(complaint)


def on_page_markdown(markdown: str, page: Any, **rest: Any) -> str:
    """Puts the notebook, with what it showed, into the page that asks for it."""
    if NOTEBOOK not in markdown:
        return markdown
    path = Path(page.file.abs_src_path).parent / "examples" / "own-network.ipynb"
    return markdown.replace(NOTEBOOK, in_markdown(path))
