"""The margin's dual: with a certificate, a lower bound of a linear form on the last hidden layer, neuron by neuron.

With multipliers lambda of the layers' equations and a rate rho >= 0 of the certificate, the Lagrangian splits into one
parabola and kink per neuron, `v relu(z) + rho pi (z - zc)^2 - lambda z` on [l, u], and a linear form on the inputs. The
matrix's own term is bounded from below by a tangent: `rho x'Sx >= 2 t'Sx - t'St / rho` for any t, as S is semidefinite.
Here the variables are found, by Adam in float32; every iterate is a bound but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from relucert.bounding.adam import Adam
from relucert.common.deadline import check_time
from relucert.methods.quadratic.maps import DTYPE, Maps
from relucert.methods.quadratic.problem import HiddenLayer

DECAY = (0.9, 0.99)
RATES = (0.03, 0.03, 0.05)  # of Adam for links, rate and tangent, in their units
COOLED = 0.02  # the last step's share of them
PATIENCE = 60  # steps after which an ascent ends that has not risen
FLAT = 1e-6  # relative rise that counts as none
RATE_CHOICES = 40  # first guesses of the rate


@dataclass(frozen=True, eq=False)
class DualPoint:
    """What the bound is free to choose.

    Attributes:
        rate: Of the certificate (rho), > 0.
        links: Of the equations of every hidden layer (lambda), (size,) each.
        tangent: Where the tangent touches, times the rate: (rows,).
    """

    rate: Tensor
    links: list[Tensor]
    tangent: Tensor


@dataclass(frozen=True, eq=False)
class Target:
    """A linear form on the last hidden layer's outputs, (size,), plus an offset: what is to be bounded."""

    form: Tensor
    offset: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The dual function's value, its gradient, and what the neurons' outputs cost there.

    Attributes:
        value: The bound.
        links: Its gradient, as `rate` and `tangent`.
        rate: By the rate.
        tangent: By the tangent.
        costs: The coefficients v of every hidden layer's outputs: (size,) each.
    """

    value: float
    links: list[Tensor]
    rate: Tensor
    tangent: Tensor
    costs: list[Tensor]


class DualFunction:
    """The dual function of one certificate, whose right side is 1, and one target."""

    def __init__(self, maps: Maps, weights: list[Tensor], matrix: Tensor, target: Target) -> None:
        self.maps, self.weights, self.matrix, self.target = maps, weights, matrix, target

    def __call__(self, point: DualPoint) -> Evaluation:
        maps, layers = self.maps, self.maps.layers
        image = self.matrix @ point.tangent
        height = float(point.tangent @ image)
        towards, *errors = maps.split(2 * image)
        form = towards + maps.entrance.T @ point.links[0]
        inputs = -maps.problem.region.norm.farthest(form, maps.walls)
        value = self.target.offset - float(point.rate) - height / float(point.rate) + float(form @ inputs)
        squares, costs, optima = 0.0, [], []
        for number, (layer, link) in enumerate(zip(layers, point.links, strict=True)):
            cost = self._cost(point, number)
            slope = link
            if number < len(errors):
                neurons, error = layer.loose, errors[number]
                cost = cost.index_add(0, neurons, error)
                slope = slope.index_add(0, neurons, error * layer.slope[neurons])
                value -= float(error @ (layer.centre.clamp(min=0) - layer.slope * layer.centre)[neurons])
            least, optimum = _minimum(layer, cost, self.weights[number] * point.rate, slope)
            constant = layer.bias if number else layer.centre
            value += float(link @ constant) + float(least.sum())
            squares += float((self.weights[number] * (optimum - layer.centre).square()).sum())
            costs.append(cost)
            optima.append(optimum)
        outputs = [optimum.clamp(min=0) for optimum in optima]
        links = [layers[0].centre + maps.entrance @ inputs - optima[0]]
        links += [
            layer.weight @ output + layer.bias - optimum
            for layer, output, optimum in zip(layers[1:], outputs, optima[1:], strict=False)
        ]
        point_there = [inputs]
        for layer, output, optimum in zip(layers[:-1], outputs, optima, strict=False):
            error = output - layer.centre.clamp(min=0) - layer.slope * (optimum - layer.centre)
            point_there.append(error[layer.loose])
        rate = point.rate.new_tensor(squares + height / float(point.rate) ** 2 - 1)
        tangent = 2 * (self.matrix @ torch.cat(point_there) - image / point.rate)
        return Evaluation(value, links, rate, tangent, costs)

    def _cost(self, point: DualPoint, number: int) -> Tensor:
        """The coefficients of a hidden layer's outputs, without those of the tangent."""
        if number + 1 == len(self.maps.layers):
            return self.target.form
        return self.maps.layers[number + 1].weight.T @ point.links[number + 1]


def ascend(
    function: DualFunction, start: DualPoint, moments: list[Tensor], steps: int, enough: float = torch.inf
) -> tuple[float, DualPoint, list[Tensor]]:
    """The best point on an ascent, its value and the outputs' costs there; it ends early once the value is enough.

    moments: mean squares of the deviations of every hidden layer, which the tangent's units are taken from.
    """
    maps = function.maps
    size = maps.problem.sizes[0]
    norm = maps.problem.region.norm
    units = torch.cat([
        norm.spread(torch.ones(size, dtype=DTYPE)),
        *((layer.width * moment.sqrt())[layer.loose] for layer, moment in zip(maps.layers[:-1], moments, strict=False)),
    ])  # fmt: skip
    scales = [link.abs().mean() + 1e-8 for link in start.links]
    links, tangent, log_rate = [link.clone() for link in start.links], start.tangent.clone(), start.rate.log()
    adam = Adam([*links, log_rate, tangent], DECAY, 1e-12)
    best: tuple[float, DualPoint, list[Tensor]] | None = None
    milestone, improved = -torch.inf, 0
    for step in range(steps):
        check_time()
        rate = log_rate.exp()
        here = function(DualPoint(rate, links, tangent))
        if best is None or here.value > best[0]:
            best = here.value, DualPoint(rate, [link.clone() for link in links], tangent.clone()), here.costs
            if here.value > enough:
                break
        assert best is not None
        if best[0] > milestone + FLAT * (abs(best[0]) + float(rate)):
            milestone, improved = best[0], step
        elif step > improved + PATIENCE:
            break
        gradients = [gradient * scale for gradient, scale in zip(here.links, scales, strict=True)]
        *ways, rate_way, tangent_way = adam.directions([*gradients, here.rate * rate, here.tangent * units])
        cooling = max(1 - step / steps, COOLED)
        for link, way, scale in zip(links, ways, scales, strict=True):
            link.add_(way * scale, alpha=RATES[0] * cooling)
        log_rate = log_rate + RATES[1] * cooling * rate_way
        tangent.add_(tangent_way * units * rate, alpha=RATES[2] * cooling)
    assert best is not None
    return best


def first_point(function: DualFunction) -> DualPoint:
    """Links as the gradient at the centre has them, no tangent, and the best of a row of rates."""
    maps, links, form = function.maps, [], function.target.form
    for layer in reversed(maps.layers):
        links.append(form * layer.slope)
        form = layer.weight.T @ links[-1]
    links.reverse()
    tangent = torch.zeros(maps.problem.rows, dtype=DTYPE)
    last = maps.layers[-1]
    margin = abs(float(function.target.form @ last.centre.clamp(min=0)) + function.target.offset)
    rates = torch.logspace(-3, 2, RATE_CHOICES, dtype=DTYPE) * max(margin, 1e-6)
    values = torch.tensor([function(DualPoint(rate, links, tangent)).value for rate in rates])
    return DualPoint(rates[values.nan_to_num(-torch.inf).argmax()], links, tangent)


def _minimum(layer: HiddenLayer, cost: Tensor, curvature: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """The least `cost relu(z) + curvature (z - centre)^2 - slope z` between the bounds of z, and where it is."""
    lower, upper, centre = layer.lower, layer.upper, layer.centre
    least, place = torch.full_like(centre, torch.inf), centre
    curved = curvature > 1e-30
    doubled = torch.where(curved, 2 * curvature, 1)
    for low, high, rise, there in (
        (lower.clamp(max=0), upper.clamp(max=0), -slope, (lower < 0) | (upper <= 0)),
        (lower.clamp(min=0), upper.clamp(min=0), cost - slope, upper > 0),
    ):
        free = torch.where(curved, centre - rise / doubled, torch.where(rise > 0, low, high))
        here = torch.minimum(torch.maximum(free, low), high)
        value = torch.where(there, rise * here + curvature * (here - centre).square(), torch.inf)
        place = torch.where(value < least, here, place)
        least = torch.minimum(value, least)
    return least, place
