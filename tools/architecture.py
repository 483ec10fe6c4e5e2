"""Draws the layers of the package from its real imports: `python -m tools.architecture`, or `make pictures`."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tools.layers import LAYERS, imports, room_imports, room_of

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "architecture.svg"
WIDTH, ROW, BOX, MARGIN, LABEL = 960, 64, 34, 20, 350  # pixels; LABEL: for what the layers are for, at the right
STYLE = (
    "text{font:14px system-ui,sans-serif;fill:#1f2328}.purpose{font-size:12px;fill:#59636e}.count{fill:#59636e}"
    ".room{fill:#eef4fb;stroke:#5b8bc2}.layer{fill:#fff;stroke:#d1d9e0}.import{stroke:#9aa7b4;fill:none}"
)


def drawn() -> str:
    """The picture: one row per layer, the highest at the top, and a line for each import that no others imply."""
    rooms, sizes = room_imports(), _sizes()
    places, shapes = {}, []
    for number, layer in enumerate(reversed(LAYERS)):
        top = MARGIN + number * ROW
        shapes.append(f'<rect class="layer" x="8" y="{top - 8}" width="{WIDTH - 16}" height="{BOX + 16}" rx="8"/>')
        shapes.append(_text(layer.purpose, WIDTH - LABEL, top + BOX / 2 + 4, "purpose"))
        pitch = (WIDTH - LABEL - MARGIN) / len(layer.rooms)
        for place, room in enumerate(layer.rooms):
            places[room] = (MARGIN + pitch * (place + 0.5), top)
    lines = [_line(places[room], places[other]) for room in sorted(rooms) for other in sorted(_reduced(rooms)[room])]
    for room, (middle, top) in places.items():
        width = 9 * len(room) + 54
        shapes.append(
            f'<rect class="room" x="{middle - width / 2:.0f}" y="{top}" width="{width}" height="{BOX}" rx="6"/>'
            + f'<text x="{middle:.0f}" y="{top + BOX / 2 + 5}" text-anchor="middle">{escape(room)} '
            + f'<tspan class="count">{sizes[room]}</tspan></text>'
        )
    height = 2 * MARGIN + len(LAYERS) * ROW - (ROW - BOX)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
    back = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    frames = [shape for shape in shapes if 'class="layer"' in shape]
    others = [shape for shape in shapes if 'class="layer"' not in shape]
    return "\n".join([head, f"<style>{STYLE}</style>", back, *frames, *lines, *others, "</svg>"]) + "\n"


def _sizes() -> dict[str, int]:
    """The number of modules of each room."""
    names = [room_of(module) for module in imports()]
    return {room: names.count(room) for room in names if room is not None}


def _reduced(rooms: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports of rooms that do not follow from others."""
    reached = {room: _reach(rooms, room) for room in rooms}
    return {
        room: {other for other in others if not any(other in reached[between] for between in others - {other})}
        for room, others in rooms.items()
    }


def _reach(rooms: dict[str, set[str]], room: str) -> set[str]:
    """All rooms that a room imports, directly or through others."""
    seen: set[str] = set()
    waiting = list(rooms.get(room, ()))
    while waiting:
        if (other := waiting.pop()) not in seen:
            seen.add(other)
            waiting += rooms.get(other, ())
    return seen


def _line(above: tuple[float, float], below: tuple[float, float]) -> str:
    start, end = above[1] + BOX, below[1]
    bend = (start + end) / 2
    way = f"M{above[0]:.0f} {start} C{above[0]:.0f} {bend:.0f} {below[0]:.0f} {bend:.0f} {below[0]:.0f} {end}"
    return f'<path class="import" d="{way}"/>'


def _text(words: str, left: float, base: float, style: str) -> str:
    return f'<text class="{style}" x="{left:.0f}" y="{base:.0f}">{escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(drawn())
