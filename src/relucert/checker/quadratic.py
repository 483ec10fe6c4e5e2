"""The check of a proof by quadratic certificates, in exact numbers, with none of the code that found them."""

from __future__ import annotations

from relucert.checker.document import Rejected
from relucert.checker.linearised_chain import linearise
from relucert.checker.quadratic_document import QuadraticProof
from relucert.checker.quadratic_margin import least_margin
from relucert.checker.quadratic_matrix import inequality
from relucert.network import Network


def check_quadratic(network: Network, proof: QuadraticProof) -> None:
    """Raises Rejected unless every row, plus its offset, is proven to be positive in the region."""
    linearised, linear = linearise(network, proof)
    if not linearised.layers:
        raise Rejected("the network has no ReLUs")
    for number, entry in enumerate(proof.certificates):
        if entry is None:
            if not linear[number] > 0:
                raise Rejected(f"by CROWN's lines, row {number} is not proven to be positive")
            continue
        least = least_margin(
            linearised, entry, inequality(linearised, entry), proof.rows[number], proof.offsets[number]
        )
        if not least > 0:
            raise Rejected(f"the certificate of row {number} does not prove that it is positive")
