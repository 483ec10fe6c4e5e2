"""Small networks for tests: a table of shapes, each made from a seed."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering.activations import clip, leaky_relu
from relucert.inputs.loading.operands import scalar
from relucert.network import (
    Add,
    BatchScale,
    Convolution,
    IndexMap,
    Layer,
    Linear,
    Network,
    Node,
    Relu,
    Reshape,
    Scale,
    Shift,
)

NORMS = (1.0, 1.5, 2.0, 3.0, float("inf"))


def mlp(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Network:
    """A chain of linear layers with ReLUs between them."""
    generator = torch.Generator().manual_seed(seed)
    operations: list[Layer] = []
    for inputs, outputs in itertools.pairwise(sizes):
        operations += [linear_of(inputs, outputs, generator, dtype), Relu()]
    return chain((sizes[0],), *operations[:-1])


def chain(input_shape: tuple[int, ...], *operations: Layer) -> Network:
    return Network(input_shape, tuple(Node(operation, (place,)) for place, operation in enumerate(operations)))


def twins(perturbation: float, *sizes: int, shared: bool = False, seed: int = 0) -> Network:
    """A chain and a perturbed copy of it, on one input, and all outputs of both.

    shared: whether the first operation, on the input, is one that both have in common.
    """
    sizes = sizes or (3, 8, 8, 8, 2)
    generator = torch.Generator().manual_seed(seed)
    network = mlp(*sizes, seed=seed)
    nodes = [Node(IndexMap.of(torch.arange(sizes[0]), (sizes[0],)), (0,))] if shared else []
    before, count = len(nodes), len(network.nodes)
    for copy in range(2):
        for value, node in network.steps():
            source = before if value == 1 else before + copy * count + value - 1
            operation = node.operation
            if copy and isinstance(operation, Linear):
                noise = torch.randn(operation.weight.shape, generator=generator)
                operation = Linear(operation.weight * (1 + perturbation * noise), operation.bias)
            nodes.append(Node(operation, (source,)))
    outputs = sizes[-1]
    for copy in range(2):
        places = torch.full((2 * outputs,), -1)
        places[copy * outputs : (copy + 1) * outputs] = torch.arange(outputs)
        nodes.append(Node(IndexMap.of(places, (outputs,)), (before + (copy + 1) * count,)))
    return Network((sizes[0],), (*nodes, Node(Add(), (len(nodes) - 1, len(nodes)))))


def residual(seed: int = 0) -> Network:
    """Two skip connections: over a block of two layers, and from the input's first layer to the last."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [(6, 8), (8, 8), (8, 8), (8, 5)]
    first, second, third, last = (linear_of(*size, generator, torch.float32) for size in sizes)
    return Network(
        (6,),
        (
            Node(first, (0,)),
            Node(Relu(), (1,)),
            Node(second, (2,)),
            Node(Relu(), (3,)),
            Node(Add(), (2, 4)),
            Node(third, (5,)),
            Node(Relu(), (6,)),
            Node(Add(), (7, 1)),
            Node(last, (8,)),
        ),
    )


def skipping(size: int = 6, classes: int = 4, seed: int = 0) -> Network:
    """`x + relu(a x)`: the skip comes from before any ReLU and stands first in the sum, then last."""
    generator = torch.Generator().manual_seed(seed)
    first, second, last = (
        linear_of(*sizes, generator, torch.float32) for sizes in [(size, size), (size, size), (size, classes)]
    )
    return Network(
        (size,),
        (
            Node(first, (0,)),
            Node(Relu(), (1,)),
            Node(Add(), (0, 2)),
            Node(second, (3,)),
            Node(Relu(), (4,)),
            Node(Add(), (5, 0)),
            Node(Add(), (6, 6)),
            Node(last, (7,)),
        ),
    )


def normalised(seed: int = 0) -> Network:
    """Image-shaped input, normalised by channel, flattened; a ReLU reshaped on the way; a bias of its own."""
    generator = torch.Generator().manual_seed(seed)
    return chain(
        (2, 2, 3),
        Shift(torch.tensor([[[0.1]], [[-0.3]]])),
        Scale(torch.tensor([[[0.3]], [[0.7]]]), divide=True),
        Scale(torch.tensor(-1.25), divide=False),
        Reshape((2, 2, 3), (12,)),
        linear_of(12, 9, generator, torch.float32),
        Shift(torch.linspace(-1, 1, 9)),
        Relu(),
        Reshape((9,), (3, 3)),
        Reshape((3, 3), (9,)),
        linear_of(9, 7, generator, torch.float32),
        Relu(),
        Relu(),
        linear_of(7, 4, generator, torch.float32),
    )


def rectified_input(seed: int = 0) -> Network:
    """A ReLU on the input itself, and one on the output."""
    generator = torch.Generator().manual_seed(seed)
    hidden, last = linear_of(5, 6, generator, torch.float32), linear_of(6, 3, generator, torch.float32)
    return chain((5,), Relu(), hidden, Relu(), last, Relu())


def convolutional(seed: int = 0) -> Network:
    """Strides, uneven padding, dilation and groups; the second convolution's windows outgrow its input."""
    generator = torch.Generator().manual_seed(seed)
    return chain(
        (2, 5, 4),
        convolution_of(generator, (4, 2, 3, 2), (5, 4), stride=(2, 1), padding=(1, 0, 0, 1)),
        Relu(),
        convolution_of(generator, (4, 2, 2, 2), (2, 4), padding=(1, 1, 0, 1), dilation=(1, 2), groups=2),
        Relu(),
        Reshape((4, 2, 4), (32,)),
        linear_of(32, 4, generator, torch.float32),
    )


def image_residual(seed: int = 0) -> Network:
    """Batch normalisation, a block with a skip connection through a convolution, an index map."""
    generator = torch.Generator().manual_seed(seed)
    mirrored = torch.arange(12).reshape(3, 2, 2).flip(-1)
    mirrored[:, 0, 0] = -1  # a corner becomes zero
    mirrored[2] = mirrored[1]  # and one channel is picked twice
    return Network(
        (1, 4, 4),
        (
            Node(convolution_of(generator, (2, 1, 3, 3), (4, 4), padding=(1, 1, 1, 1)), (0,)),
            Node(Shift(torch.tensor([[[0.1]], [[-0.2]]])), (1,)),
            Node(BatchScale(torch.tensor([[[0.8]], [[-1.1]]]), torch.full((2, 1, 1), 0.7), 1e-5), (2,)),
            Node(Shift(torch.tensor([[[-0.1]], [[0.2]]])), (3,)),
            Node(Relu(), (4,)),
            Node(convolution_of(generator, (3, 2, 3, 3), (4, 4), stride=(2, 2), padding=(1, 1, 1, 1)), (5,)),
            Node(Relu(), (6,)),
            Node(convolution_of(generator, (3, 3, 2, 2), (2, 2), padding=(0, 0, 1, 1)), (7,)),
            Node(convolution_of(generator, (3, 2, 1, 1), (4, 4), stride=(2, 2)), (5,)),
            Node(Add(), (8, 9)),
            Node(Relu(), (10,)),
            Node(IndexMap.of(mirrored, (3, 2, 2)), (11,)),
            Node(Reshape((3, 2, 2), (12,)), (12,)),
            Node(linear_of(12, 4, generator, torch.float32), (13,)),
        ),
    )


def leaky_and_clipped(seed: int = 0) -> Network:
    """A leaky ReLU and a clip, in the affine operations and ReLUs that an import writes them in."""
    generator = torch.Generator().manual_seed(seed)
    assembly = Assembly((6,), 1, torch.float32)
    layers = [linear_of(*sizes, generator, torch.float32) for sizes in [(6, 8), (8, 8), (8, 4)]]

    def affine(value: int, layer: Linear) -> int:
        return assembly.add(assembly.linear(value, layer.weight), layer.bias)

    value = leaky_relu(assembly, affine(0, layers[0]), scalar(0.1))
    value = clip(assembly, affine(value, layers[1]), scalar(-0.5), scalar(1.0))
    return assembly.finish(affine(value, layers[2]), "leaky and clipped")


def tiny_image(seed: int = 0) -> Network:
    """Every operation on images, with so few neurons that a search over their signs ends at once."""
    generator = torch.Generator().manual_seed(seed)
    picked = torch.tensor([[[3], [1]], [[0], [-1]]])
    return Network(
        (1, 3, 2),
        (
            Node(convolution_of(generator, (2, 1, 2, 2), (3, 2)), (0,)),
            Node(BatchScale(torch.tensor([[[0.8]], [[-1.1]]]), torch.full((2, 1, 1), 0.7), 1e-5), (1,)),
            Node(Relu(), (2,)),
            Node(convolution_of(generator, (2, 2, 2, 1), (2, 1), padding=(0, 0, 1, 0)), (3,)),
            Node(IndexMap.of(picked, (2, 2, 1)), (3,)),
            Node(Add(), (4, 5)),
            Node(Relu(), (6,)),
            Node(Reshape((2, 2, 1), (4,)), (7,)),
            Node(linear_of(4, 4, generator, torch.float32), (8,)),
        ),
    )


NETWORKS: dict[str, Callable[[], Network]] = {
    "linear": lambda: mlp(6, 4),
    "two layers": lambda: mlp(6, 10, 4),
    "three layers": lambda: mlp(6, 10, 8, 4, seed=1),
    "five layers": lambda: mlp(6, 8, 8, 8, 8, 4, seed=2),
    "half precision": lambda: mlp(6, 10, 8, 4, seed=3, dtype=torch.float16),
    "residual": residual,
    "skipping": skipping,
    "normalised": normalised,
    "rectified input": rectified_input,
    "convolutional": convolutional,
    "image residual": image_residual,
    "leaky and clipped": leaky_and_clipped,
}


def centres(network: Network, count: int = 3, seed: int = 0) -> Tensor:
    """Random inputs, flat, in float64."""
    return torch.randn(count, network.sizes[0], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear_of(inputs: int, outputs: int, generator: torch.Generator, dtype: torch.dtype) -> Linear:
    weight = torch.randn(outputs, inputs, generator=generator) / inputs**0.5 * 1.4
    return Linear(weight.to(dtype), (torch.randn(outputs, generator=generator) * 0.3).to(dtype))


def convolution_of(
    generator: torch.Generator,
    weight: tuple[int, int, int, int],
    size: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> Convolution:
    kernel = torch.randn(weight, generator=generator) / (weight[1] * weight[2] * weight[3]) ** 0.5 * 1.4
    bias = torch.randn(weight[0], generator=generator) * 0.3
    return Convolution(kernel, bias, size, stride, padding, dilation, groups)
