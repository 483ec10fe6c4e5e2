"""HTML and SVG from the templates in `templates/`, which escape whatever is not markup already."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Environment(
    loader=PackageLoader("relucert.report"), autoescape=True, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
TEMPLATES.filters["g"] = lambda number: f"{number:.6g}"
TEMPLATES.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}


def render(template: str, **values: Any) -> Markup:
    """The markup that a template makes of some values."""
    return Markup(TEMPLATES.get_template(template).render(values))
