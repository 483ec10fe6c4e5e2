"""HTML and SVG by construction: whatever is not markup already is escaped, here and nowhere else."""

from __future__ import annotations

import html
import json
from typing import Any

VOID = frozenset({"meta", "img", "input"})


class Markup(str):
    """Text that is markup already."""


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element: children that are plain are escaped, attributes always; None and False leave an attribute out.

    Underscores in attribute names stand for hyphens, and one at the end for nothing: `class_`, `aria_sort`.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    start = f"<{name}{written}>"
    return Markup(start if name in VOID else f"{start}{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """Children one after another; None is nothing."""
    return Markup("".join(_escaped(child) for child in children if child is not None))


def raw(name: str, content: str, /, **attributes: object) -> Markup:
    """A script or a style, whose content browsers take as it is."""
    return Markup(str(tag(name, **attributes)).replace("></", f">{content}</", 1))


def data(content: Any) -> str:
    """JSON that no HTML parser can mistake for markup."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _escaped(child: object) -> str:
    return child if isinstance(child, Markup) else html.escape(str(child))


def _attribute(key: str, value: object) -> str:
    text = "" if value is True else f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {key.removesuffix("_").replace("_", "-")}="{html.escape(text)}"'
