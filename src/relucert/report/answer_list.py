"""Lists of answers, as the public calls return them."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex, TypeVar, overload

from relucert.answers import Recordable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AnyAnswer = TypeVar("AnyAnswer", bound=Recordable)


class Answers(list[AnyAnswer]):
    """A list of answers that notebooks show as a table and that can be drawn; in all else a list like any other."""

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> AnyAnswer: ...
    @overload
    def __getitem__(self, place: slice, /) -> Answers[AnyAnswer]: ...
    def __getitem__(self, place: SupportsIndex | slice, /) -> AnyAnswer | Answers[AnyAnswer]:
        return Answers(super().__getitem__(place)) if isinstance(place, slice) else super().__getitem__(place)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the share of images that keep their class against the radius, into `ax` or a new figure."""
        from relucert.report import notebook  # matplotlib takes a second to import

        return notebook.plot(self, ax)

    def _repr_html_(self) -> str:
        from relucert.report import notebook  # matplotlib takes a second to import

        return notebook.table(self)
