"""Where data, networks and properties lie that are too large for the project; tests without them are skipped."""

from pathlib import Path

SHARED = Path(__file__).parents[2] / "shared"
