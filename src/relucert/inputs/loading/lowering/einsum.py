"""Einstein's sums of products: with a constant a linear map, of two values a sum of products of values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from string import ascii_letters
from typing import NamedTuple

import torch
from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import products, reductions
from relucert.inputs.loading.operands import Operand
from relucert.network import Shape


class _Term(NamedTuple):
    """A value or a constant, and a letter for each of its axes, without the batch."""

    operand: Operand
    letters: str


def einsum(assembly: Assembly, equation: str, operands: Sequence[Operand]) -> int:
    """The sum of products that an equation such as `bij,jk->bik` states; the first axis of values is the batch.

    A value meets the constants first, one after the other, and then further values.
    """
    ranks = [len(_full_shape(assembly, operand)) for operand in operands]
    letters, output = _letters(equation, ranks)
    terms = [_Term(*pair) for pair in zip(operands, letters, strict=True)]
    if assembly.batch is not None:
        terms, output = _without_batch(equation, terms, output)
    values = [_diagonal(assembly, term) for term in terms if not isinstance(term.operand, Tensor)]
    constants = [_diagonal(assembly, term) for term in terms if isinstance(term.operand, Tensor)]
    result, *others = [values[0], *constants, *values[1:]]
    for number, other in enumerate(others):
        kept = output + "".join(later.letters for later in others[number + 1 :])
        result = _pair(assembly, _summed(assembly, result, kept + other.letters), other, kept)
    return _arranged(assembly, _summed(assembly, result, output), [*output])


def bilinear(assembly: Assembly, left: Operand, right: Operand, weight: Tensor, bias: Operand | None) -> int:
    """`sum of left_i weight_oij right_j + bias_o` over the last axes; weight: (outputs, left size, right size)."""
    product = einsum(assembly, "...i,oij,...j->...o", [left, weight, right])
    return product if bias is None else assembly.add(product, bias)


def _letters(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """A letter for each axis of every operand, and of the result; the axes of an ellipsis get letters of their own."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise UnsupportedError(f"{equation} for {len(ranks)} operands")
    spare = "".join(letter for letter in ascii_letters if letter not in equation)
    counts = [
        rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)
    ]
    most = max(counts)
    letters = [term.replace("...", spare[most - count : most]) for term, count in zip(terms, counts, strict=True)]
    named = "".join(terms).replace("...", "")
    alone = "".join(sorted(letter for letter in named if named.count(letter) == 1))
    return letters, output.replace("...", spare[:most]) if arrow else spare[:most] + alone


def _without_batch(equation: str, terms: Sequence[_Term], output: str) -> tuple[list[_Term], str]:
    """The terms and the letters of the result without the batch, which is the first axis of each value."""
    rest = [term if isinstance(term.operand, Tensor) else _Term(term.operand, term.letters[1:]) for term in terms]
    batch = {term.letters[:1] for term in terms if not isinstance(term.operand, Tensor)} | {output[:1]}
    if len(batch) != 1 or any(batch & {*letters} for letters in (output[1:], *(term.letters for term in rest))):
        raise UnsupportedError(f"{equation}: the batch must be the first axis of every value and of the result alone")
    return rest, output[1:]


def _diagonal(assembly: Assembly, term: _Term) -> _Term:
    """The term with each letter once: where one is repeated, the diagonal is taken."""
    unique = "".join(dict.fromkeys(term.letters))
    if unique == term.letters:
        return term
    equation = f"{term.letters}->{unique}"
    if isinstance(term.operand, Tensor):
        return _Term(torch.einsum(equation, term.operand), unique)
    shape = assembly.shape(term.operand)
    indices = torch.einsum(equation, torch.arange(prod(shape)).reshape(shape))
    return _Term(assembly.index_map(term.operand, indices.contiguous()), unique)


def _pair(assembly: Assembly, value: _Term, other: _Term, kept: Collection[str]) -> _Term:
    """The product of two terms, summed over the axes that both have and the rest of the equation has not."""
    sizes = dict(zip(value.letters, assembly.shape(value.operand), strict=True))
    shape = tuple(other.operand.shape) if isinstance(other.operand, Tensor) else assembly.shape(other.operand)
    if any(sizes.setdefault(letter, size) != size for letter, size in zip(other.letters, shape, strict=True)):
        raise UnsupportedError(f"axes of different sizes, {assembly.shape(value.operand)} and {shape}, as one")
    shared = [letter for letter in value.letters if letter in other.letters]
    blocks, summed = (
        [letter for letter in shared if letter in kept],
        [letter for letter in shared if letter not in kept],
    )
    rows = [letter for letter in value.letters if letter not in shared]
    columns = [letter for letter in other.letters if letter not in shared]
    if isinstance(other.operand, Tensor):
        weight = other.operand.permute([other.letters.index(letter) for letter in (*blocks, *columns, *summed)])
        product, letters = _linear(assembly, value, weight, (blocks, summed, rows, columns), sizes)
    else:
        letters = "".join([*blocks, *rows, *columns])
        factors = [_spread(assembly, term, [*letters, *summed]) for term in (value, other)]
        product = assembly.multiply(*factors)
        if summed:
            product = reductions.total(assembly, product, range(-len(summed), 0), False)
    return _Term(assembly.reshaped(product, tuple(sizes[letter] for letter in letters)), letters)


def _linear(
    assembly: Assembly, value: _Term, weight: Tensor, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]
) -> tuple[int, str]:
    """The products with matrices, one for each block, and the letters of their axes.

    Args:
        assembly: The network so far.
        value: A value.
        weight: The matrices: (*blocks, *columns, *summed).
        groups: The letters of blocks, of axes that are summed, of the rows of the value, and of the columns of results.
        sizes: By letters.
    """
    blocks, summed, rows, columns = groups
    block_count, terms, positions, outputs = (prod(sizes[letter] for letter in group) for group in groups)
    if not blocks:
        matrix = assembly.reshaped(_arranged(assembly, value, [*rows, *summed]), (positions, terms))
        return products.affine(assembly, matrix, weight.reshape(outputs, terms)), "".join([*rows, *columns])
    arranged = _arranged(assembly, value, [*blocks, *summed, *rows])
    image = assembly.reshaped(arranged, (block_count * terms, 1, positions))
    kernels = weight.reshape(block_count * outputs, terms, 1, 1)
    return assembly.convolution(image, kernels, groups=block_count), "".join([*blocks, *columns, *rows])


def _summed(assembly: Assembly, term: _Term, kept: Collection[str]) -> _Term:
    """A value summed over the axes whose letters are not kept."""
    axes = [number - len(term.letters) for number, letter in enumerate(term.letters) if letter not in kept]
    if not axes:
        return term
    letters = "".join(letter for letter in term.letters if letter in kept)
    return _Term(reductions.total(assembly, term.operand, axes, False), letters)


def _arranged(assembly: Assembly, term: _Term, order: Sequence[str]) -> int:
    """A value with its axes in this order."""
    shape = assembly.shape(term.operand)
    positions = torch.arange(prod(shape)).reshape(shape)
    return assembly.index_map(
        term.operand, positions.permute([term.letters.index(letter) for letter in order]).contiguous()
    )


def _spread(assembly: Assembly, term: _Term, order: Sequence[str]) -> int:
    """A value with its axes in this order, and axes of size 1 for letters that it has not."""
    arranged = _arranged(assembly, term, [letter for letter in order if letter in term.letters])
    sizes = iter(assembly.shape(arranged))
    return assembly.reshaped(arranged, tuple(next(sizes) if letter in term.letters else 1 for letter in order))


def _full_shape(assembly: Assembly, operand: Operand) -> Shape:
    return tuple(operand.shape) if isinstance(operand, Tensor) else assembly.full_shape(operand)
