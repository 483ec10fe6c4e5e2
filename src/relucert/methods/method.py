"""A method, as the radius search sees it."""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.interval import Bounds
from relucert.network import Network


class Method(Protocol):
    """Lower bounds of margins in two steps: the pre-activations of the hidden layers first (for all rivals at once, the
    costly part), then the margins. Network, region and property come in the arithmetic's dtype; with a rigorous
    arithmetic every result must be proven."""

    @property
    def name(self) -> str: ...

    @property
    def weaker(self) -> Method | None:
        """A cheaper method whose margins are never larger; None: there is none.

        The search starts from its radius. Where the margins are costly, too, the last method of the chain predicts
        them.
        """

    @property
    def takes_inference(self) -> bool:
        """Whether its bounds hold for a network that is evaluated in floating point."""

    @property
    def needs_rectifiers(self) -> bool:
        """Whether it is about ReLU alone, rather than about any activation."""

    def remark(self, point: Tensor, prop: Property) -> str | None:
        """What there is to say about the answer to a question, if anything: a point, (size,), and the property, of a
        batch of one, that was asked about there."""

    def bounds_stable_neurons(self, network: Network) -> bool:
        """Whether `hidden` bounds stable neurons as tightly as the others."""

    def hidden(self, network: Network, region: Region, arithmetic: Arithmetic) -> Bounds:
        """Bounds of every pre-activation, or of those that `margins` needs."""

    def margins(
        self, network: Network, region: Region, prop: Property, hidden: Bounds, arithmetic: Arithmetic
    ) -> Tensor:
        """Lower bounds of what must be positive: (batch, rows).

        Those of quadratic certificates that are not positive are as computed: they claim nothing.
        """


class MethodDefaults:
    """What most methods say of themselves: their bounds hold for evaluations in floating point and for any activation,
    stable neurons are bounded as tightly as others by forward passes, and there is nothing to remark."""

    takes_inference: ClassVar[bool] = True
    needs_rectifiers: ClassVar[bool] = False

    def remark(self, point: Tensor, prop: Property) -> str | None:
        return None

    def bounds_stable_neurons(self, network: Network) -> bool:
        return network.suits_forward


@runtime_checkable
class ExpensiveMethod(Method, Protocol):
    """A method whose evaluations are costly, and whose radii are far beyond those of the weaker method.

    Attributes:
        gain: About how many times the weaker method's radius it proves: where the search looks first.
        resolution: The least relative tolerance worth searching to, as what it finds is not quite smooth in the radius.
    """

    gain: ClassVar[float]
    resolution: ClassVar[float]

    @property
    def surrogate(self) -> Method:
        """The cheap method whose margins, plus a correction, predict this method's between two evaluations."""
