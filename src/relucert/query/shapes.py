"""The shapes of images that fit a network, by one rule: its input's shape, flat, or either with axes of length one.

Where a network leaves the shape of its input open, the images that it is loaded for tell it.
"""

from __future__ import annotations

from itertools import permutations
from math import prod

from torch import Tensor, nn

from relucert.errors import InputError, OpenShapeError
from relucert.inputs.loading import load
from relucert.network import Network, Shape
from relucert.query.types import NetworkLike

LAYOUTS = ("nchw", "nhwc")  # of pictures: colours first, colours last
MOST_COLOURS = 4  # an axis no longer than this may be the colours


def in_order(images: Tensor, network: Network, layout: str | None = None) -> Tensor:
    """Images (batch, ...) as rows (batch, size) in the order of the network's input; others are refused.

    layout: of pictures where it is known, "nchw" (colours first) or "nhwc" (colours last): they are transposed where
    the network takes the other one. A flat network takes the colours first.
    """
    shape = tuple(images.shape[1:])
    if layout is None:
        if not _fits(shape, network):
            raise InputError(_refusal(tuple(images.shape), network))
        return images.flatten(1)
    if len(shape) != 3:
        expected = "(N, C, H, W)" if layout == "nchw" else "(N, H, W, C)"
        raise InputError(f"the layout {layout} is that of images of shape {expected}; these have {tuple(images.shape)}")
    colours_first = images if layout == "nchw" else images.movedim(-1, 1)
    for arranged in (colours_first, colours_first.movedim(1, -1)):
        if _fits(tuple(arranged.shape[1:]), network) or _is_flat_picture(tuple(arranged.shape[1:]), network):
            return arranged.flatten(1)
    raise InputError(_refusal(tuple(colours_first.shape), network))


def without_unit_axes(shape: Shape) -> Shape:
    """The axes that are longer than one."""
    return tuple(axis for axis in shape if axis != 1)


def _fits(shape: Shape, network: Network) -> bool:
    axes = without_unit_axes(shape)
    if axes in (without_unit_axes(_expected(network)), without_unit_axes((network.sizes[0],))):
        return True
    grey = len(axes) == 2 and min(axes) > MOST_COLOURS  # rows and columns, which only lie one way
    return grey and _is_flat_picture(shape, network)


def _is_flat_picture(shape: Shape, network: Network) -> bool:
    """Whether the network has a flat input of this many numbers and tells nothing about pictures."""
    flat = len(without_unit_axes(network.input_shape)) == 1 and network.picture_shape is None
    return flat and prod(shape) == network.sizes[0]


def _expected(network: Network) -> Shape:
    return network.picture_shape or network.input_shape


def _refusal(shape: Shape, network: Network) -> str:
    """The error about images of a shape, the batch included, that do not fit."""
    expected, image_shape = _expected(network), shape[1:]
    flat = "" if len(expected) == 1 else f" or ({network.sizes[0]},)"
    text = f"each image must have the shape {expected}{flat}, one row per image; these have {image_shape}"
    if _fits(shape, network):
        return f"{text}: a single image needs an axis for the batch, images[None]"
    if axes := transposition(image_shape, expected):
        return f"{text}: {transposed(axes)}"
    if _is_flat_picture(image_shape, network):
        layout = "say how these pictures lie (--layout nchw or --layout nhwc), or " if len(image_shape) == 3 else ""
        return f"{text}: {layout}flatten them in the order the network takes, as in images.reshape(len(images), -1)"
    return text


def transposition(shape: Shape, expected: Shape) -> tuple[int, ...] | None:
    """The permutation of a shape's axes that gives the expected shape; colours last and first are tried before."""
    if len(shape) != len(expected):
        return None
    orders = permutations(range(len(shape)))
    tried = [(2, 0, 1), (1, 2, 0), *orders] if len(shape) == 3 else orders
    return next((axes for axes in tried if tuple(shape[axis] for axis in axes) == expected), None)


def transposed(axes: tuple[int, ...]) -> str:
    """The advice, in words, for images whose axes have to be put into this order."""
    order = ", ".join(map(str, (0, *(axis + 1 for axis in axes))))
    how = f"images.transpose({order}), or of a tensor images.permute({order})"
    if axes == (2, 0, 1):
        return f"their colours are last (NHWC); put them first with {how} (--layout nhwc)"
    if axes == (1, 2, 0):
        return f"their colours are first (NCHW); put them last with {how} (--layout nchw)"
    return f"their axes are in another order; write {how}"


def load_fitting(source: NetworkLike, shape: Shape, input_shape: Shape | None = None) -> Network:
    """The network of a source, as `relucert.load` does it, for images of this shape, the batch left out."""
    if input_shape is None and isinstance(source, nn.Module):
        input_shape = module_shape(source, shape)
    try:
        return load(source, input_shape=input_shape)
    except OpenShapeError:
        flat = len(shape) == 1 and isinstance(source, nn.Module)  # of what shape else only the user knows
        if flat or not shape:
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
