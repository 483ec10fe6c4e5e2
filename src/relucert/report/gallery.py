"""Adversarial examples on the page: original, perturbation, adversarial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from relucert.common.words import counted
from relucert.report import pictures
from relucert.report.markup import render
from relucert.report.reading import Picture, Result
from relucert.report.series import Sandwich
from relucert.report.summary import rounded_down, rounded_up

PICTURES = 60  # adversarial examples on a page at most
PICTURE_BYTES = 4_000_000  # of markup, beyond which no more are added


def gallery(questions: Sequence[Sandwich]) -> dict[str, Any] | None:
    """The nearest adversarial examples, and a sentence on how many there are; None where there are no pictures."""
    pictured = [
        (result, result.picture, question)
        for question in questions
        for result in question.results
        if result.picture is not None and result.upper
    ]
    pictured.sort(key=lambda item: item[0].upper or 0.0)
    triples: list[Markup] = []
    for result, picture, question in pictured[:PICTURES]:
        if sum(map(len, triples)) < PICTURE_BYTES:
            triples.append(_triple(result, picture, question.lower))
    if not triples:
        return None
    nearest = "" if len(triples) == len(pictured) else f"The {len(triples)} nearest of "
    words = f"{nearest}{counted(len(pictured), 'adversarial example')}, nearest first."
    return {"words": words, "triples": triples}


def _triple(attack: Result, picture: Picture, lower: Result | None) -> Markup:
    """The image, the perturbation and the adversarial example, its distance, and the radius proven to have none."""
    changes = [new - old for old, new in zip(picture.original, picture.adversarial, strict=True)]
    factor = pictures.magnification(max(map(abs, changes)) / 255)
    shown = bytes(min(255, max(0, round(127.5 + factor * change))) for change in changes)
    level = attack.predicted in (None, attack.label)  # by the last digits, or not recorded
    outcome = f"rival {attack.target} caught up" if level else f"class {attack.predicted}"
    panels = (
        (picture.original, f"image {attack.image}, class {attack.label}", f"class {attack.label}"),
        (shown, f"its perturbation, magnified {factor} times", f"\N{MULTIPLICATION SIGN}{factor}"),
        (picture.adversarial, f"adversarial example for image {attack.image}: {outcome}", outcome),
    )
    proven = ""
    if lower is not None and lower.lower and lower.covers(attack):
        proven = f", none within {rounded_down(lower.lower, 4)} ({lower.name})"
    return render(
        "triple.html",
        distance=f"image {attack.image}: distance {rounded_up(attack.upper or 0.0, 4)}",
        panels=[(pictures.address(picture.shape, pixels), alt, words) for pixels, alt, words in panels],
        words=f"{attack.name}{proven}",
    )
