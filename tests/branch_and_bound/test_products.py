"""Products with sparse copies are those with the matrix, in this process and in others."""

from multiprocessing.reduction import ForkingPickler

import pytest
import torch

from relucert.branch_and_bound.products import Product
from relucert.network.sparse_rows import FEWEST_NUMBERS


@pytest.mark.parametrize("share", [0.0, 0.05, 0.9])
@pytest.mark.parametrize("shape", [(4, 6), (80, FEWEST_NUMBERS // 40)])
def test_products_are_those_with_the_matrix(shape: tuple[int, int], share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < share)
    forms, values = torch.randn(shape[0], 7, generator=generator), torch.randn(shape[1], 7, generator=generator)
    sent = ForkingPickler.loads(ForkingPickler.dumps(Product(matrix)))
    assert isinstance(sent, Product)
    for product in (Product(matrix), sent):
        torch.testing.assert_close(product.add_pulled(None, forms), matrix.T @ forms)
        torch.testing.assert_close(product.add_pulled(values.clone(), forms), values + matrix.T @ forms)
        torch.testing.assert_close(product.add_values(forms.clone(), values), forms + matrix @ values)
    assert not product.add_pulled(None, forms[:, :0]).numel()
