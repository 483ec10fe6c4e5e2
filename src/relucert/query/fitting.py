"""Loads the network that images are meant for: they tell the shape of its input where it leaves that open."""

from __future__ import annotations

from math import prod

from torch import nn

from relucert.errors import InputError, OpenShapeError
from relucert.inputs.loading import load
from relucert.network import Network, Shape
from relucert.query.shapes import transposed, without_unit_axes
from relucert.query.types import NetworkLike


def load_fitting(source: NetworkLike, shape: Shape, input_shape: Shape | None = None) -> Network:
    """The network of a source, as `relucert.load` does it, for images of this shape, the batch left out."""
    if input_shape is None and isinstance(source, nn.Module):
        return load(source, input_shape=module_shape(source, shape))
    try:
        return load(source, input_shape=input_shape)
    except OpenShapeError:
        if not shape:
            raise
        return load(source, input_shape=shape)


def module_shape(module: nn.Module, shape: Shape) -> Shape | None:
    """The input's shape of a module that is given images of this shape: theirs, or the same numbers otherwise.

    None where the module runs on none of them: it has to tell by itself.
    """
    from relucert.inputs.loading.torch_module import runs_on  # the exporter takes seconds to import

    longer = without_unit_axes(shape)
    for candidate in dict.fromkeys((shape, longer, (1, *longer), (prod(shape),))):
        if candidate and 0 not in candidate and runs_on(module, candidate):
            return candidate
    if len(shape) == 3 and runs_on(module, colours_first := (shape[2], *shape[:2])):
        takes = f"{type(module).__name__} takes images of shape {colours_first}, one row per image"
        raise InputError(f"{takes}; these have {shape}: {transposed((2, 0, 1))}")
    return None
