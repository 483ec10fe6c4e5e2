"""The check of a proof by quadratic certificates of the first format, in exact numbers, with none of the prover's code.

The margin that a quadratic inequality proves is a sum of the least values of functions of one neuron each. Any
multipliers of the layers' equations and any tangent are sound, so those of the file are rounded first.
"""

from __future__ import annotations

from flint import fmpq, fmpz_mat

from relucert.checker.ball_region import Numbers, fraction
from relucert.checker.document import Rejected
from relucert.checker.linearised_chain import CheckedChain, CheckedLayer, Scaled, common, linearise
from relucert.checker.quadratic_document import ChainCertificate, QuadraticProof
from relucert.checker.quadratic_matrix import FORM_BITS, QuadraticInequality, inequality, shifted
from relucert.network import Network


def check_quadratic(network: Network, proof: QuadraticProof) -> None:
    """Raises Rejected unless every row, plus its offset, is proven to be positive in the region."""
    linearised, linear = linearise(network, proof)
    if not linearised.layers:
        raise Rejected("the network has no ReLUs")
    for number, entry in enumerate(proof.certificates):
        if entry is None:
            if not linear[number] > 0:
                raise Rejected(f"by CROWN's lines, row {number} is not proven to be positive")
            continue
        least = least_margin(
            linearised, entry, inequality(linearised, entry), proof.rows[number], proof.offsets[number]
        )
        if not least > 0:
            raise Rejected(f"the certificate of row {number} does not prove that it is positive")


DUAL_BITS = 80  # behind the point, of the multipliers of equations and of the tangent
SUM_BITS = 128  # the same of the least values
ZERO = fmpq(0)


def least_margin(
    linearised: CheckedChain, entry: ChainCertificate, proven: QuadraticInequality, row: list[float], offset: float
) -> fmpq:
    """A lower bound of a row of the outputs, plus its offset, in the region."""
    rate, height, image = fraction(entry.rate), *_tangent(linearised, entry, proven)
    links = [[_grid(number) for number in numbers] for numbers in entry.links]
    rows = [fraction(number) for number in row]
    total = fraction(offset) + _product(rows, linearised.bias) - rate * proven.right - height / rate
    moving = linearised.moving
    entrance = _pulled(links[0], linearised.layers[0].weight)
    total += _product(entrance, linearised.region.centre)
    form = [number * radius for number, radius in zip(entrance, linearised.region.radii, strict=True)]
    for index, share in zip(moving, image, strict=False):
        form[index] += 2 * share
    total -= linearised.region.fall(form)
    used = len(moving)
    for number, (layer, link) in enumerate(zip(linearised.layers, links, strict=True)):
        last = number + 1 == len(linearised.layers)
        cost = (
            _pulled(rows, linearised.weight)
            if last
            else _pulled(links[number + 1], linearised.layers[number + 1].weight)
        )
        pull = [ZERO] * len(link)
        for index, share in zip(layer.loose, image[used:], strict=False):
            pull[index] = 2 * share
        used += len(layer.loose)
        total += _product(link, layer.bias) + _neurons(layer, cost, pull, link, entry.weights[number], rate)
    return total


def _tangent(linearised: CheckedChain, entry: ChainCertificate, proven: QuadraticInequality) -> tuple[fmpq, Numbers]:
    """`t' S t` and `S t`, in units of v, for the file's tangent rounded in units of u."""
    inputs, *errors = entry.tangent
    numbers = [inputs[index] for index in linearised.moving]
    numbers += [
        centres[index] for layer, centres in zip(linearised.layers, errors, strict=False) for index in layer.loose
    ]
    whole = [
        int(shifted(fraction(number), DUAL_BITS - power).floor())
        for number, power in zip(numbers, proven.powers, strict=True)
    ]
    image = (proven.matrix * fmpz_mat([[coordinate] for coordinate in whole])).entries()
    height = sum((number * mapped for number, mapped in zip(whole, image, strict=True)), 0)
    unit = 2 * FORM_BITS + DUAL_BITS
    powers = zip(image, proven.powers, strict=True)
    shares = [shifted(fmpq(number, 1 << unit), -power) for number, power in powers]
    return fmpq(height, 1 << (unit + DUAL_BITS)), shares


def _neurons(
    layer: CheckedLayer, cost: Numbers, pull: Numbers, link: Numbers, weights: list[float], rate: fmpq
) -> fmpq:
    """The sum of the least values on [l, u] of `cost relu(z) + rate weight (z - zc)^2 - link z + pull e`, where e is
    `relu(z) - relu(zc) - slope (z - zc)`."""
    slopes, total = layer.slope or [ZERO] * len(link), ZERO
    for neuron, centre in enumerate(layer.centre):
        multiplier, slope, curvature = pull[neuron], slopes[neuron], rate * fraction(weights[neuron])
        constant = multiplier * (slope * centre - max(centre, ZERO))
        down = -link[neuron] - multiplier * slope
        low, high = layer.lower[neuron], layer.upper[neuron]
        pieces = []
        if low <= 0:
            pieces.append(_parabola(low, min(high, ZERO), down, centre, curvature))
        if high >= 0:
            pieces.append(_parabola(max(low, ZERO), high, down + cost[neuron] + multiplier, centre, curvature))
        total += constant + fmpq((min(pieces) * (1 << SUM_BITS)).floor(), 1 << SUM_BITS)
    return total


def _parabola(low: fmpq, high: fmpq, rise: fmpq, centre: fmpq, curvature: fmpq) -> fmpq:
    """The least `rise z + curvature (z - centre)^2` on [low, high], exactly."""
    flat = low if rise > 0 else high
    point = flat if curvature == 0 else min(max(centre - rise / (2 * curvature), low), high)
    return rise * point + curvature * (point - centre) ** 2


def _pulled(form: Numbers, weight: Scaled) -> Numbers:
    """`form @ weight`, exactly; the form's numbers are fractions of powers of two."""
    whole, bits = common(form)
    coefficients = (fmpz_mat([whole]) * weight.matrix).entries()
    return [fmpq(coefficient, 1 << (bits + weight.bits)) for coefficient in coefficients]


def _product(row: Numbers, column: Numbers) -> fmpq:
    return sum((first * second for first, second in zip(row, column, strict=True)), ZERO)


def _grid(number: float) -> fmpq:
    return fmpq((fraction(number) * (1 << DUAL_BITS)).floor(), 1 << DUAL_BITS)
