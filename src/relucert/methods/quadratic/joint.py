"""The joint certificate: weights of their own for every neuron, scaled until the certificate is feasible.

For any weights P and D let rho be the largest eigenvalue of `D^-1/2 A'PA D^-1/2`; then P with rho D is feasible. The
eigenvalue is followed by block power iterations, one for each step of the ascent, and its gradient is that of the
Rayleigh quotients of the leading vectors.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from relucert.methods.quadratic.dual import TINIEST, Weights
from relucert.methods.quadratic.linearised_network import LinearisedNetwork

VECTORS = 6  # that are iterated for each form
LEADING = 4  # whose Rayleigh quotients share the gradient
SHARPNESS = 60.0


class Spectrum(NamedTuple):
    """The largest eigenvalue of every form's certificate, and its derivatives in the weights' logarithms.

    Attributes:
        largest: rho, (forms,).
        shares: The derivatives of log rho, (forms, count) each: in log P, and the negatives of those in log D.
    """

    largest: Tensor
    shares: Weights


class PowerIteration:
    """Vectors v that approach the leading eigenvectors while weights change: (forms, VECTORS, rows)."""

    def __init__(self, linearised: LinearisedNetwork, forms: int) -> None:
        self.linearised, self.layers = linearised, linearised.followed
        self.sizes = [len(linearised.radii), *(len(linearised.neurons[value]) for value in self.layers)]
        generator, dtype = torch.Generator().manual_seed(0), linearised.radii.dtype
        self.vectors = torch.randn(forms, VECTORS, sum(self.sizes), generator=generator, dtype=dtype)

    def step(self, weights: Weights) -> Spectrum:
        """One iteration with these weights, all of them positive."""
        forms = len(self.vectors)
        diagonal = torch.cat([
            weights.inputs.expand(-1, self.sizes[0]).expand(forms, -1),
            *(weights.errors[value].expand(forms, -1) for value in self.layers),
        ], 1).clamp(min=TINIEST)  # fmt: skip
        scale = diagonal.sqrt()[:, None]
        factor = torch.linalg.qr((self.vectors * scale).transpose(1, 2)).Q
        vectors = factor.transpose(1, 2) / scale
        images = self._forward(vectors)
        roots = {value: weight.expand(forms, -1)[:, None].sqrt() for value, weight in weights.deviations.items()}
        rows = torch.cat([images[value] * roots[value] for value in images], 2)
        values, rotation = torch.linalg.eigh(rows @ rows.transpose(1, 2))
        leading = values[:, -LEADING:]
        shares = torch.softmax(SHARPNESS * leading / leading[:, -1:].clamp(min=TINIEST), 1)[..., None]
        turned = rotation.transpose(1, 2)[:, -LEADING:]
        quotients = leading[..., None].clamp(min=TINIEST)
        deviations = {
            value: (((turned @ image) * roots[value]).square() / quotients * shares).sum(1)
            for value, image in images.items()
        }
        inputs, *errors = ((turned @ vectors * scale).square() * shares).sum(1).split(self.sizes, 1)
        squared = {value: image * roots[value].square() for value, image in images.items()}
        self.vectors = self._transposed(squared) / diagonal[:, None]
        return Spectrum(values[:, -1], Weights(deviations, dict(zip(self.layers, errors, strict=True)), inputs))

    def _forward(self, vectors: Tensor) -> dict[int, Tensor]:
        inputs, *errors = vectors.flatten(0, 1).split(self.sizes, 1)
        images = self.linearised.forward(inputs, dict(zip(self.layers, errors, strict=True)))
        return {value: image.unflatten(0, vectors.shape[:2]) for value, image in images.items()}

    def _transposed(self, images: dict[int, Tensor]) -> Tensor:
        shape = next(iter(images.values())).shape[:2]
        inputs, errors = self.linearised.transposed({value: image.flatten(0, 1) for value, image in images.items()})
        return torch.cat([inputs, *(errors[value] for value in self.layers)], 1).reshape(*shape, -1)
