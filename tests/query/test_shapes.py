"""Which shapes of images a network takes, and that none is reshaped into another picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch

import relucert
from relucert.errors import InputError
from relucert.network import Linear, Network, Reshape
from relucert.query.shapes import in_order
from tests.nets import chain

PICTURE = (3, 5, 6)


def network(*shape: int, picture: tuple[int, ...] | None = None) -> Network:
    """A network of this input, which adds all numbers up by weights that tell them apart."""
    size = prod(shape)
    weight = torch.arange(2.0 * size).reshape(2, size).sin()
    built = chain(shape, Reshape(shape, (size,)), Linear(weight, torch.zeros(2)))
    return replace(built, picture_shape=picture)


def pictures(*shape: int) -> torch.Tensor:
    return torch.arange(2.0 * prod(shape)).reshape(2, *shape)


FITTING: list[tuple[Network, tuple[int, ...]]] = [
    (network(*PICTURE), PICTURE),
    (network(*PICTURE), (90,)),
    (network(*PICTURE), (1, 3, 5, 6)),
    (network(1, 5, 6), (5, 6)),
    (network(5, 6), (1, 5, 6)),
    (network(5, 6), (5, 6, 1)),
    (network(1, 5, 6), (5, 6, 1)),
    (network(1, 5, 6), (30,)),
    (network(30), (5, 6)),
    (network(30), (1, 5, 6)),
    (network(30), (5, 6, 1)),
    (network(30), (1, 30)),
    (network(90, picture=PICTURE), PICTURE),
    (network(90, picture=PICTURE), (90,)),
]


@pytest.mark.parametrize(("known", "shape"), FITTING)
def test_fitting_shapes_keep_the_order_of_their_numbers(known: Network, shape: tuple[int, ...]) -> None:
    images = pictures(*shape)
    assert torch.equal(in_order(images, known), images.flatten(1))


REFUSED: list[tuple[Network, tuple[int, ...], str]] = [
    (network(*PICTURE), (5, 6, 3), r"colours are last \(NHWC\).*images.transpose\(0, 3, 1, 2\).*--layout nhwc"),
    (network(5, 6, 3), PICTURE, r"colours are first \(NCHW\).*images.transpose\(0, 2, 3, 1\).*--layout nchw"),
    (network(*PICTURE), (3, 6, 5), r"another order; write images.transpose\(0, 1, 3, 2\)"),
    (network(5, 6), (6, 5), r"another order; write images.transpose\(0, 2, 1\)"),
    (network(90, picture=PICTURE), (5, 6, 3), "--layout nhwc"),
    (network(90), PICTURE, "say how these pictures lie"),
    (network(90), (5, 6, 3), "say how these pictures lie"),
    (network(90), (30, 3), r"must have the shape \(90,\).*these have \(30, 3\): flatten them"),
    (network(*PICTURE), (5, 18), r"must have the shape \(3, 5, 6\) or \(90,\)"),
    (network(*PICTURE), (3, 5, 7), r"these have \(3, 5, 7\)"),
    (network(30), (31,), r"these have \(31,\)"),
]


@pytest.mark.parametrize(("known", "shape", "message"), REFUSED)
def test_other_shapes_are_refused_with_what_to_do(known: Network, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        relucert.certify(known, pictures(*shape))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("known", "shape"), [(network(5, 6), (5, 6)), (network(30), (30,)), (network(30), (5, 6))])
def test_a_single_image_is_told_to_be_one(known: Network, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"images\[None\]"):
        relucert.certify(known, pictures(*shape)[0])


@pytest.mark.parametrize(
    ("known", "layout", "arranged"),
    [
        (network(*PICTURE), "nchw", lambda images: images),
        (network(*PICTURE), "nhwc", lambda images: images.transpose(0, 3, 1, 2)),
        (network(90, picture=PICTURE), "nhwc", lambda images: images.transpose(0, 3, 1, 2)),
        (network(90), "nhwc", lambda images: images.transpose(0, 3, 1, 2)),
        (network(90), "nchw", lambda images: images),
        (network(5, 6, 3), "nhwc", lambda images: images),
        (network(5, 6, 3), "nchw", lambda images: images.transpose(0, 2, 3, 1)),
    ],
)
def test_a_layout_that_is_said_is_brought_into_the_networks(
    known: Network, layout: str, arranged: Callable[[np.ndarray], np.ndarray]
) -> None:
    images = pictures(*(PICTURE if layout == "nchw" else (5, 6, 3)))
    expected = arranged(images.numpy()).reshape(2, 90)
    assert np.array_equal(in_order(images, known, layout).numpy(), expected)


def test_what_is_ambiguous_lies_as_the_network_takes_it_unless_the_layout_is_said() -> None:
    images, cube = pictures(3, 3, 3), network(3, 3, 3)
    assert torch.equal(in_order(images, cube), images.flatten(1))
    assert torch.equal(in_order(images, cube, "nhwc"), images.permute(0, 3, 1, 2).flatten(1))


@pytest.mark.parametrize(("shape", "layout"), [((90,), "nhwc"), ((5, 6), "nchw"), ((5, 7, 3), "nhwc")])
def test_a_layout_is_about_pictures_that_fit(shape: tuple[int, ...], layout: str) -> None:
    with pytest.raises(InputError, match="shape"):
        in_order(pictures(*shape), network(*PICTURE), layout)


def test_bundled_networks_take_pictures_with_and_without_their_single_colour() -> None:
    images = relucert.data.bundled().first(3)
    radii = [answer.radius for answer in relucert.certify("mnist-2x20", images.images, images.labels)]
    for shape in ((28, 28), (1, 28, 28), (28, 28, 1)):
        answers = relucert.certify("mnist-2x20", images.images.reshape(3, *shape), images.labels)
        assert [answer.radius for answer in answers] == radii
    with pytest.raises(InputError, match=r"\(1, 28, 28\) or \(784,\)"):
        relucert.certify("mnist-2x20", images.images.reshape(3, 14, 56))
