"""`relucert.lipschitz`: how steep the margins of a network can be within a region."""

from __future__ import annotations

from dataclasses import replace

import torch

from relucert.answers.certificates import LipschitzBound, parse_rounding
from relucert.api.certifiers import ARITHMETICS
from relucert.arithmetic.property import Property
from relucert.arithmetic.region import Region
from relucert.arithmetic.rigor import check_subnormals
from relucert.common import names
from relucert.common.names import ArithmeticName, LipschitzName
from relucert.errors import InputError
from relucert.inputs.loading import load
from relucert.methods.lipschitz import LipschitzMethod
from relucert.methods.table import find_method
from relucert.network import Network
from relucert.query.types import NetworkLike


def lipschitz(
    network: NetworkLike,
    region: Region,
    prop: Property,
    *,
    method: LipschitzName = "fast-lip",
    arithmetic: ArithmeticName = "rigorous",
    input_shape: tuple[int, ...] | None = None,
) -> list[LipschitzBound]:
    """Upper bounds of the Lipschitz constants of a property's rows over each region, one answer per region.

    A constant is about the region's own norm: within the region no two points x and y have values that differ by more
    than the constant times the norm of x - y, in units of the scale.

    Args:
        network: A Network, a torch.nn.Module, a file or a zoo name.
        region: As `relucert.Region.around` makes it.
        prop: Rows on the outputs, as `relucert.Property.margins` makes them.
        method: "fast-lip", "lipschitz-norm" or "op-norm", which knows no region.
        arithmetic: "rigorous" (proven, rounding included) or "float" (rounding ignored: no proof).
        input_shape: Of one image, where the network does not tell it.
    """
    loaded = load(network, input_shape=input_shape)
    lipschitz_method = find_method(names.LIPSCHITZ.find(method))
    assert isinstance(lipschitz_method, LipschitzMethod)
    lipschitz_method = replace(lipschitz_method, shells=1)
    rounding = parse_rounding(arithmetic)
    precise = ARITHMETICS[rounding]
    _check(loaded, region, prop)
    if precise.rigorous:
        check_subnormals()
    with torch.inference_mode():
        cast, double = loaded.cast(precise.dtype), region.cast(precise.dtype)
        rows = prop.rows.to(precise.dtype)
        hidden = lipschitz_method.hidden(cast, double, precise)
        constants = lipschitz_method.constants(cast, double, rows, hidden, precise)[:, -1]
        constants = constants.nan_to_num(nan=torch.inf, posinf=torch.inf)  # where numbers overflow nothing is proven
    return [
        LipschitzBound(tuple(values), radius, region.norm.p, lipschitz_method.name, rounding)
        for radius, values in zip(region.radius.tolist(), constants.tolist(), strict=True)
    ]


def _check(network: Network, region: object, prop: object) -> None:
    if not isinstance(region, Region) or not isinstance(prop, Property) or not bool(region.points.isfinite().all()):
        raise InputError("a Lipschitz constant needs a relucert.Region around finite numbers, and a relucert.Property")
    count, size = len(region.radius), network.sizes[0]
    if region.points.shape[1] != size:
        raise InputError(f"the region has {region.points.shape[1]} coordinates, the network {size}")
    if not bool((torch.isfinite(region.radius) & (region.radius > 0)).all()):
        raise InputError("a Lipschitz constant needs a region with a finite radius > 0")
    if len(prop) != count or prop.rows.shape[2] != network.classes or not prop.rows.numel():
        shape = tuple(prop.rows.shape)
        raise InputError(f"{count} regions need rows ({count}, rows, {network.classes}), one row at least, not {shape}")
    if not bool(prop.rows.isfinite().all() and prop.offsets.isfinite().all()):
        raise InputError("the property has NaN or infinite numbers")
