"""The check of a proof by quadratic certificates on graphs, in integers, with none of the code that found them."""

from __future__ import annotations

from dataclasses import dataclass, field

from relucert.checker.certificate_document import CertificateProof, IntervalEntry
from relucert.checker.certificate_feasible import Feasibility
from relucert.checker.certificate_margin import Margin
from relucert.checker.entries import Rejected, require
from relucert.checker.linearised_network import CheckedNetwork
from relucert.checker.lines import BOUND_BITS, IntegerInterval
from relucert.checker.rules import rule_lines
from relucert.checker.tree_check import TreeCheck
from relucert.checker.trees import by_rule
from relucert.network import Network


def check_certificates(network: Network, proof: CertificateProof) -> None:
    """Raises Rejected unless every row, plus its offset, is proven to be positive in the region."""
    bounded = TreeCheck.of(network, proof, by_rule(proof.rule))
    linear = bounded.margins()
    for number, entry in enumerate(proof.row_proofs):
        require(entry is not None or linear[number] > 0, f"by CROWN's lines, row {number} is not proven to be positive")
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


@dataclass(eq=False)
class IntervalCheck:
    """Bounds pre-activations in the order of the graph, from the bounds of those before.

    Attributes:
        proof: Whose certificates bound neurons.
        bounded: Has bounds of all pre-activations by CROWN's rule.
        bounds: By pre-activation, as far as it went.
    """

    proof: CertificateProof
    bounded: TreeCheck
    bounds: dict[int, IntegerInterval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        preactivations = set(self.bounded.bounds)
        require(set(self.proof.intervals) <= preactivations, "it bounds neurons of values that are no pre-activations")

    def __call__(self, linearised: CheckedNetwork, value: int) -> IntegerInterval:
        """The bounds of a pre-activation; the network has the neurons of all before it."""
        interval = self.bounded.bounds[value]
        if any(earlier in self.proof.intervals for earlier in self.bounds):
            interval = self._by_lines(value, interval)
        if value in self.proof.intervals:
            feasibility = Feasibility(linearised.before(value))
            for entry in self.proof.intervals[value]:
                interval = _by_certificate(feasibility, entry, interval)
        self.bounds[value] = interval
        return interval

    def _by_lines(self, value: int, interval: IntegerInterval) -> IntegerInterval:
        """Intersects bounds of unstable neurons with those of CROWN, whose lines use tightened bounds."""
        neurons = interval.unstable.nonzero().flatten().tolist()
        if not neurons:
            return interval
        relaxation = self.bounded.relaxation
        lines = rule_lines(relaxation, self.bounds, self.proof.rule)
        enclosure = relaxation.enclose(value, self.bounds, lines, neurons)
        return interval.replaced(neurons, enclosure)


def _by_certificate(feasibility: Feasibility, entry: IntervalEntry, interval: IntegerInterval) -> IntegerInterval:
    """Intersects bounds of the last layer of a linearised network with what a certificate proves of single neurons."""
    linearised = feasibility.linearised
    size = len(interval.lower)
    require(all(neuron < size for neuron in entry.neurons), "it bounds neurons that the network does not have")
    feasibility.check_sizes(entry.certificate)
    feasibility.check(entry.certificate)
    weights = feasibility.input_weights(entry.certificate)
    least = []
    for neuron, sign, proof in zip(entry.neurons, entry.signs, entry.proofs, strict=True):
        form = [0.0] * size
        form[neuron] = float(sign)
        margin = Margin(linearised, entry.certificate, weights, proof).least(form, 0.0)
        least.append(int((margin * (1 << BOUND_BITS)).floor()))
    return interval.raised(entry.neurons, entry.signs, least)
