"""The check of a proof by quadratic certificates on graphs, in integers, with none of the code that found them."""

from __future__ import annotations

from relucert.checker.certificate_document import CertificateProof
from relucert.checker.certificate_feasible import Feasibility
from relucert.checker.certificate_intervals import IntervalCheck
from relucert.checker.certificate_margin import Margin
from relucert.checker.entries import Rejected
from relucert.checker.linearised_network import CheckedNetwork
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import by_rule
from relucert.network import Network


def check_certificates(network: Network, proof: CertificateProof) -> None:
    """Raises Rejected unless every row, plus its offset, is proven to be positive in the region."""
    bounded = TreeCheck.of(network, proof, by_rule(proof.rule), proof.inference)
    linear = bounded.margins()
    for number, entry in enumerate(proof.row_proofs):
        if entry is None and not linear[number] > 0:
            raise Rejected(f"by CROWN's lines, row {number} is not proven to be positive")
    linearised = CheckedNetwork.of(proof, bounded, IntervalCheck(proof, bounded))
    feasibility = Feasibility(linearised)
    for certificate in proof.certificates:
        feasibility.check_sizes(certificate)
    for number, entry in enumerate(proof.row_proofs):
        if entry is None:
            continue
        certificate = proof.certificates[entry.certificate]
        margin = Margin(linearised, certificate, feasibility.input_weights(certificate), entry)
        if not margin.least(proof.rows[number], proof.offsets[number]) > 0:
            raise Rejected(f"the certificate of row {number} does not prove that it is positive")
    for certificate in proof.certificates:  # last, as it takes longest
        feasibility.check(certificate)
