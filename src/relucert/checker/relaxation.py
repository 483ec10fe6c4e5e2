"""Lower bounds of linear forms on the values of a network over a region: back-substitution (CROWN) in fixed point.

A form `c relu(z)` is at least the form in which a lower line replaces the ReLU of every positive coefficient, and an
upper line, the chord, that of every negative one; so for other activations. Coefficients are rounded to 58 bits on the
way; the error that this adds is charged, by the bounds of the neurons. Nothing is shared with the code of the provers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from relucert.checker.activations import FUNCTIONS, SmoothFunction, is_activation, smooth_function
from relucert.checker.enclosures import Enclosed
from relucert.checker.fixed_layers import FixedLayer, fixed_layers
from relucert.checker.fixed_point import BITS, Fixed, multiply, of_floats, row_sums, sums
from relucert.checker.fixed_region import FixedRegion
from relucert.checker.lines import BOUND_BITS, CHORD_BITS, SLOPE_BITS, UNIT_SLOPE, Bounds, ChosenLines, IntegerInterval
from relucert.checker.noise import ActivationError
from relucert.checker.totals import Totals
from relucert.network import Network

Ends = tuple[Fraction, Fraction]
CHUNK = 2**20  # coefficients that are back-substituted at once, which bounds memory
LOW = (1 << CHORD_BITS) - 1  # the mask of a coefficient's lower bits, which are multiplied apart from the upper ones
LONGEST = 900  # bits behind the point of forms from which multiples are taken off
FAST_LIN = ChosenLines()


@dataclass(frozen=True, eq=False)
class FixedRelaxation:
    """A network over one region, whose linear forms it bounds.

    Attributes:
        layers: The network's affine operations by value, from `fixed_layers`: the same for every region.
        noise: By value, what its evaluation in floating point may add to each coordinate: bounds are those of computed
            values.
        error: How far such an evaluation of a smooth activation may be off.
    """

    network: Network
    layers: dict[int, FixedLayer]
    region: FixedRegion
    noise: Mapping[int, Fixed] = field(default_factory=dict)
    error: ActivationError | None = None

    @classmethod
    def of(cls, network: Network, region: FixedRegion) -> FixedRelaxation:
        return cls(network, fixed_layers(network), region)

    @cached_property
    def smooth(self) -> dict[int, SmoothFunction]:
        """The activations other than ReLU, by the values that they compute."""
        return {
            value: smooth_function(node) for value, node in self.network.steps() if node.operation.name in FUNCTIONS
        }

    def enclosed(self, value: int, bounds: Bounds) -> Enclosed:
        """The smooth activation that computes a value, between the bounds of its pre-activation."""
        return bounds[self.network.source(value)].enclosed(self.smooth[value], self.error)

    def least(self, value: int, forms: Tensor, bounds: Bounds, lines: ChosenLines = FAST_LIN) -> list[int]:
        """Lower bounds of forms on a value, integers over 2**64, wherever the bounds and signs hold.

        Args:
            forms: float64, (forms, size).
            bounds: Those of every pre-activation before the value.
            lines: The dual variables of the bound.
        """
        rows = of_floats(forms)
        least: list[int] = []
        for chunk in self._chunks(len(forms)):
            coefficients = replace(rows, units=rows.units[chunk])
            least += _BackSubstitution(self, bounds, lines.of_forms(chunk), both=False).run(coefficients, value)[0]
        return least

    def enclose(
        self, value: int, bounds: Bounds, lines: ChosenLines = FAST_LIN, neurons: Sequence[int] | None = None
    ) -> IntegerInterval:
        """Bounds of a value's neurons, of all or of a list of them, rounded outwards; they share the lines."""
        indices = list(range(self.network.sizes[value])) if neurons is None else list(neurons)
        lower, upper = self._bound_neurons(value, bounds, lines, indices, 1, stop=False)
        if not lines.parallel:
            upper = [-number for number in self._bound_neurons(value, bounds, lines, indices, -1, stop=False)[0]]
        return IntegerInterval(lower, upper)

    def settle(self, value: int, bounds: Bounds, lines: ChosenLines, interval: IntegerInterval) -> IntegerInterval:
        """Improves the bounds of a value's unstable neurons until these are stable, as far as lines prove it.

        A form is back-substituted until its sign is known. Where lines are not parallel, the lower bound of a neuron
        comes first if the middle of its interval is positive, otherwise the upper bound; the second bound is computed
        only where the neuron is still unstable.
        """
        unstable = interval.unstable.nonzero().flatten().tolist()
        if lines.parallel:
            lower, upper = self._bound_neurons(value, bounds, lines, unstable, 1, stop=True)
            return interval.replaced(unstable, IntegerInterval(lower, upper))
        upwards = [neuron for neuron in unstable if interval.lower[neuron] + interval.upper[neuron] > 0]
        downwards = sorted(set(unstable) - set(upwards))
        for signs in ((1, -1), (-1, 1)):
            for neurons, sign in zip((upwards, downwards), signs, strict=True):
                least, _ = self._bound_neurons(value, bounds, lines, neurons, sign, stop=True)
                interval = interval.raised(neurons, [sign] * len(neurons), least)
            upwards, downwards = (
                [index for index in neurons if interval.unstable[index]] for neurons in (upwards, downwards)
            )
        return interval

    def _bound_neurons(
        self, value: int, bounds: Bounds, lines: ChosenLines, neurons: Sequence[int], sign: int, *, stop: bool
    ) -> tuple[list[int], list[int]]:
        """Lower bounds of neurons, or with the sign -1 of their negatives, and with parallel lines upper bounds.

        stop: whether forms are dropped once their signs are known.
        """
        indices = torch.tensor(neurons, dtype=torch.long)
        order = self._spatial_order(value, indices)
        indices = indices[order]
        lower: list[int] = []
        upper: list[int] = []
        for chunk in self._chunks(len(indices)):
            start, forms, ends = self._units(value, indices[chunk])
            if sign < 0:
                forms, ends = forms.negated(), [(-high, -low) for low, high in ends]
            substitution = _BackSubstitution(self, bounds, lines, both=lines.parallel, stop=stop)
            below, above = substitution.run(forms, start, ends)
            lower += below
            upper += above
        back = order.argsort().tolist()
        return [lower[index] for index in back], [upper[index] for index in back]

    def _spatial_order(self, value: int, neurons: Tensor) -> Tensor:
        """The neurons ordered by their positions in an image: forms of neighbours have few columns together."""
        shape = self.network.shapes[value]
        positions = neurons % (shape[1] * shape[2]) if len(shape) == 3 else neurons
        return positions.argsort(stable=True)

    def _units(self, value: int, neurons: Tensor) -> tuple[int, Fixed, list[Ends]]:
        """Neurons as forms on a value, plus constants: the value, the forms, and lower and upper ends of the constants.

        The forms are rows of the weights on the value before, where these are stored that way, else unit vectors.
        """
        if value:
            layer = self.layers.get(value)
            rows = None if layer is None else layer.neurons(neurons)
            if rows is not None and layer is not None and layer.constant is not None and not layer.constant.error:
                ends = self._constants(layer.constant, self.noise.get(value), neurons)
                return self.network.source(value), rows, ends
        one_hot = torch.nn.functional.one_hot(neurons, self.network.sizes[value])
        return value, Fixed(one_hot, 0), [(Fraction(0), Fraction(0))] * len(neurons)

    def _constants(self, constant: Fixed, noise: Fixed | None, neurons: Tensor) -> list[Ends]:
        scale = Fraction(2) ** -constant.bits
        numbers = [scale * number for number in constant.units[neurons].tolist()]
        if noise is None:
            return [(number, number) for number in numbers]
        unit = Fraction(2) ** -noise.bits
        added = [unit * number for number in noise.units[neurons].tolist()]
        return [(number - more, number + more) for number, more in zip(numbers, added, strict=True)]

    def _chunks(self, count: int) -> list[slice]:
        step = max(1, CHUNK // max(self.network.sizes))
        return [slice(begin, begin + step) for begin in range(0, count, step)]


@dataclass(eq=False)
class _BackSubstitution:
    """One back-substitution of linear forms.

    Attributes:
        both: Whether forms are bounded from above, too, which takes parallel lines.
        stop: Whether forms are dropped at an activation whose image already tells their signs.
    """

    relaxation: FixedRelaxation
    bounds: Bounds
    lines: ChosenLines
    both: bool
    stop: bool = False

    def run(self, forms: Fixed, value: int, ends: Sequence[Ends] | None = None) -> tuple[list[int], list[int]]:
        """Bounds of forms on a value plus constants between ends, integers over 2**64; upper ones only for `both`."""
        self.network = self.relaxation.network
        self.open = list(range(len(forms.units)))  # the forms that are not done
        self.done: dict[int, tuple[int, int]] = {}  # the bounds of the others
        self.totals = Totals.zero(len(forms.units), self.both)  # of the open forms
        if ends is not None:
            self.totals.add([low for low, _ in ends], [high for _, high in ends])
        pending = {value: forms}
        for current in range(value, 0, -1):
            if current not in pending:
                continue
            node, reached = self.network.node(current), pending.pop(current)
            if is_activation(node):
                if self.stop and not pending and not self.lines.flat:
                    reached = self._drop_signed(current, reached)
                    if not self.open:
                        break
                pulled = self._through(current, node.inputs[0], reached)
            else:
                pulled = self._affine(current, reached)
            if pulled is None:
                continue
            for source in node.inputs:
                pending[source] = pending[source].plus(pulled) if source in pending else pulled
        if 0 in pending:
            self._enter(pending[0])
        self.done |= {form: self.totals.bounds(index) for index, form in enumerate(self.open)}
        bounds = [self.done[form] for form in sorted(self.done)]
        return [below for below, _ in bounds], [above for _, above in bounds]

    def _drop_signed(self, value: int, forms: Fixed) -> Fixed:
        """The forms on activations but for those whose signs the activations' images tell, which are done."""
        before = self.totals.copy()
        self._flat(forms, *self._charged_image(value, forms))
        still_open = [index for index in range(len(self.open)) if not self.totals.tells_sign(index)]
        self.done |= {
            form: self.totals.bounds(index) for index, form in enumerate(self.open) if self.totals.tells_sign(index)
        }
        self.open = [self.open[index] for index in still_open]
        self.totals = before.select(still_open)
        return replace(forms, units=forms.units[still_open])

    def _affine(self, value: int, forms: Fixed) -> Fixed:
        """Forms on the value of an affine operation as forms on its inputs; the constants are added."""
        layer = self.relaxation.layers[value]
        if value in self.relaxation.noise:
            self._noise(forms, self.relaxation.noise[value])
        constants = layer.at_zero(forms)
        if constants is not None:
            numbers, bits, charge = constants
            self.totals.add_units(numbers, numbers, bits)
            self.totals.charge(charge)
        return layer.transpose(forms)

    def _noise(self, forms: Fixed, noise: Fixed) -> None:
        """Charges what a value's evaluation may add."""
        moved, bits = sums(forms.absolute, noise), forms.bits + noise.bits
        self.totals.add_units([-number for number in moved], moved, bits)
        if forms.error:
            self.totals.charge(Fraction(forms.error * sum(noise.units.tolist())) / Fraction(2) ** bits)

    def _enter(self, forms: Fixed) -> None:
        """Concretises forms on the input over the region."""
        region = self.relaxation.region
        below = region.least(forms)
        above = [-number for number in region.least(forms.negated())] if self.both else below
        self.totals.add(below, above)

    def _through(self, value: int, source: int, forms: Fixed) -> Fixed | None:
        """Forms on activations as forms on their pre-activation; the offsets of the lines are added to the totals.

        None where every activation is replaced by its image (IBP): nothing is left of the forms.
        """
        low, high = self._charged_image(value, forms)
        if self.lines.flat:
            self._flat(forms, low, high)
            return None
        forms = replace(forms, error=0).filled()
        if value in self.relaxation.smooth:
            return self._smooth(value, forms, self.relaxation.enclosed(value, self.bounds))
        support = None if value in self.lines.multipliers else forms.support
        signs = self.lines.signs.get(source)
        signs = None if signs is None else _at(signs, support)
        interval = self.bounds[source]
        return self._relaxed(value, forms.at(support), interval, signs, support).spread(support, len(interval.lower))

    def _relaxed(
        self, value: int, forms: Fixed, interval: IntegerInterval, signs: Tensor | None, support: Tensor | None
    ) -> Fixed:
        """Forms on ReLUs as forms on their pre-activation; support: the neurons of the columns, None for all."""
        shares = self.lines.multipliers.get(value)
        if shares is not None:
            shares = shares.double().nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
            forms = _with_room(forms, float(shares.max()))
        units = forms.units
        self._heights(forms, interval, signs, support)
        chords, proof_slopes = _at(interval.chords, support), self.lines.slopes.get(value)
        lower = chords if proof_slopes is None else _at(_slopes(proof_slopes, interval), support)
        slopes = torch.where(units > 0, lower, chords)
        if signs is not None:
            slopes = torch.where(signs > 0, UNIT_SLOPE, torch.where(signs < 0, 0, slopes))
        pulled = (units >> CHORD_BITS) * slopes + (((units & LOW) * slopes) >> CHORD_BITS)
        self.totals.charge(Fraction(interval.unstable_magnitude) / Fraction(2) ** (forms.bits + BOUND_BITS))
        if shares is not None:
            pulled = pulled - _shares(shares, forms.bits, interval, signs)
        return Fixed(pulled, forms.bits)

    def _heights(self, forms: Fixed, interval: IntegerInterval, signs: Tensor | None, support: Tensor | None) -> None:
        """Adds the offsets of upper lines."""
        columns = _at(interval.unstable, support).nonzero().flatten()
        if not len(columns):
            return
        heights = interval.heights.at(support).at(columns)
        units = forms.units[:, columns]
        if signs is not None:
            units = units * (signs[..., columns] == 0)
        bits = forms.bits + heights.bits
        falls = sums(Fixed(units.clamp(max=0), forms.bits), heights)
        rises = sums(Fixed(units.clamp(min=0), forms.bits), heights) if self.both else falls
        self.totals.add_units(falls, rises, bits)

    def _charged_image(self, value: int, forms: Fixed) -> tuple[Fixed, Fixed]:
        """Lower and upper bounds of the activations of a value; their sizes charge the error of forms on them."""
        smooth = value in self.relaxation.smooth
        interval = self.bounds[self.network.source(value)]
        image = self.relaxation.enclosed(value, self.bounds) if smooth else interval
        self.totals.charge(Fraction(forms.error * image.total) / Fraction(2) ** (forms.bits + BOUND_BITS))
        return image.image

    def _smooth(self, value: int, forms: Fixed, enclosed: Enclosed) -> Fixed:
        """Forms on a smooth activation by lines below it where coefficients are positive, above it elsewhere."""
        below, above = self.lines.smooth[value]
        units = forms.units
        for slopes, sign, clamped in ((below, 1, units.clamp(min=0)), (above, -1, units.clamp(max=0))):
            coefficients = Fixed(clamped, forms.bits)
            if slopes.ndim == 1:
                offsets = enclosed.offsets(slopes, sign)
                amounts = sums(coefficients, offsets)
            else:
                offsets = enclosed.offsets(slopes, sign, clamped != 0)
                amounts = row_sums(coefficients, offsets)
            self.totals.add_units(amounts, amounts, forms.bits + offsets.bits)
        return multiply(forms, of_floats(torch.where(units > 0, below, above)), torch.mul, 1)

    def _flat(self, forms: Fixed, low: Fixed, high: Fixed) -> None:
        """Adds the least, and for `both` the largest, values of forms on activations between `low` and `high` (IBP)."""
        support = forms.support
        forms, low, high = forms.at(support), low.at(support), high.at(support)
        positive, negative = (
            Fixed(clamped, forms.bits) for clamped in (forms.units.clamp(min=0), forms.units.clamp(max=0))
        )
        for first, second in ((low, high), (high, low)) if self.both else ((low, high),):
            for coefficients, ends in ((positive, first), (negative, second)):
                numbers = sums(coefficients, ends)
                zeros = [0] * len(numbers)
                below, above = (numbers, zeros) if first is low else (zeros, numbers)
                self.totals.add_units(below, above, forms.bits + ends.bits)


def _at(table: Tensor, columns: Tensor | None) -> Tensor:
    """Some columns of a table; None: all of them."""
    return table if columns is None else table[..., columns]


def _slopes(slopes: Tensor, interval: IntegerInterval) -> Tensor:
    """Lower slopes over 2**30: a proof's for unstable neurons and where it has some, otherwise those of the chords.

    A proof may have slopes of neurons that are active here and were unstable in the search. Their lines are lower lines
    all the same, also once products are rounded down, since these neurons are never negative.
    """
    clamped = slopes.clamp(0, 1 << SLOPE_BITS) << (CHORD_BITS - SLOPE_BITS)
    return torch.where(interval.unstable | (interval.active & (slopes >= 0)), clamped, interval.chords)


def _with_room(forms: Fixed, largest: float) -> Fixed:
    """The forms in units that leave room to subtract a number of this size; rounding coefficients down is sound."""
    exponent = int(torch.frexp(torch.tensor(largest, dtype=torch.float64)).exponent)
    room = min(BITS - 2 - exponent, LONGEST)
    forms = replace(forms.coarser(forms.bits - room), error=0) if forms.bits > room else forms
    return replace(forms.coarser(1), error=0) if forms.largest >= 1 << (BITS - 1) else forms


def _shares(shares: Tensor, bits: int, interval: IntegerInterval, signs: Tensor | None) -> Tensor:
    """Multipliers (beta) of neurons of a known sign, in units of 2**-bits: rounded towards zero, with these signs."""
    stable_signs = interval.active.to(torch.int64) - interval.inactive.to(torch.int64)
    if signs is not None:
        stable_signs = torch.where(signs != 0, signs.to(torch.int64), stable_signs)
    units = (shares * 2.0**bits).to(torch.int64)
    return units * stable_signs
