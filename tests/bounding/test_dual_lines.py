"""Back-substitution through lines of each form's own: the values are those of the lines, the gradients theirs."""

import pytest
import torch
from torch import Tensor

from relucert.arithmetic.forms import LinearForms, Rows
from relucert.arithmetic.windows import Places, Windows
from relucert.bounding.dual_lines import DualLines, pull_through

SHAPE = (2, 3, 4)
SIZE, BATCH, FORMS = 24, 2, 5
GENERATOR = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def windows() -> Windows:
    """Windows of 2 x 3 at places all over an image, partly outside of it."""
    places = Places(torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 3, 1, 2, 0]))
    return Windows(numbers(BATCH, FORMS, 2, 3, 2), SHAPE, places, offset=(1, 1), masked=False).mask()


FORMS_ON = {
    "rows": lambda: Rows(numbers(BATCH, FORMS, SIZE), SHAPE),
    "shared rows": lambda: Rows(numbers(1, FORMS, SIZE), SHAPE),
    "whole windows": lambda: Windows.whole(numbers(BATCH, FORMS, SIZE), SHAPE),
    "windows": windows,
}


def lines_of(form: LinearForms) -> tuple[DualLines, Tensor, Tensor, Tensor, Tensor]:
    """Lines of neurons, some of them stable, and the maps that they come of: (batch, size) each."""
    lower, upper = -numbers(BATCH, SIZE).abs() + 0.3, numbers(BATCH, SIZE).abs() - 0.3
    unstable = (lower < 0) & (upper > 0)
    above = torch.where(unstable, upper / (upper - lower), (lower >= 0).double())
    before = numbers(BATCH, SIZE)
    after = above * before - torch.where(unstable, above * lower, 0)
    return DualLines.of(form, unstable, above, before, -after), unstable, above, before, after


@pytest.mark.parametrize("name", FORMS_ON)
def test_coefficients_take_the_line_of_their_sign(name: str) -> None:
    form = FORMS_ON[name]()
    lines, unstable, above, before, after = lines_of(form)
    slopes = torch.rand(BATCH, FORMS, *form.coefficients.shape[2:], dtype=torch.float64, generator=GENERATOR)
    coefficients, gain = pull_through(form.coefficients, slopes, lines, None)
    rows = form.rows().expand(BATCH, -1, -1)
    own = form.replaced(slopes).rows() if isinstance(form, Windows) else slopes
    below = torch.where(unstable[:, None], own, above[:, None])
    taken = torch.where(rows > 0, below, above[:, None])
    torch.testing.assert_close(form.replaced(coefficients).rows(), rows * taken)
    heights = rows.clamp(min=0) * (below * before[:, None] - after[:, None])
    torch.testing.assert_close(gain, heights.sum(2))


@pytest.mark.parametrize("name", FORMS_ON)
def test_gradients_are_those_of_the_bound(name: str) -> None:
    form = FORMS_ON[name]()
    lines = lines_of(form)[0]
    slopes = torch.rand(BATCH, FORMS, *form.coefficients.shape[2:], dtype=torch.float64, generator=GENERATOR)
    assert torch.autograd.gradcheck(
        lambda numbers, slopes: pull_through(numbers, slopes, lines, None),
        (form.coefficients.detach().clone().requires_grad_(), slopes.requires_grad_()),
    )
