"""The check of a proof by quadratic certificates of the first format, which are ones of the second in other words.

The first format is about chains of layers, in real arithmetic. Where the second one has weights P of squared deviations
and D of squared errors, it has `pi + tau w^2` and tau, with multipliers pi of deviations and tau of the sectors
`abs(e) <= w abs(dz)`; its rate is the factor of a row, and its tangent the centre t times that rate. In the second
format `(v - t)' (A'PA - D) (v - t)` is a sum over neurons, in the first one its linear terms are on v = (y, e) alone:
the difference is one of the multipliers lambda. With these numbers the second format proves no less, as it takes the
least value of a neuron's term on the ReLU itself, and not in its sector. Nothing here is trusted: whatever numbers come
out of it are checked, as long as they are such as a file of the second format may have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import torch
from torch import Tensor

from relucert.checker.ball_region import BallRegion
from relucert.checker.certificate import check_certificates
from relucert.checker.certificate_document import ByLayer, CertificateEntry, CertificateProof, LayerEntry, RowEntry
from relucert.checker.claim import RadiusClaim
from relucert.checker.entries import require
from relucert.checker.fixed_layers import fixed_layers
from relucert.checker.fixed_point import of_floats
from relucert.checker.quadratic_document import ChainCertificate, QuadraticProof
from relucert.checker.trees import BoundingRule
from relucert.network import Network

SLOPE_BITS = 40  # behind the point, of the slopes of sectors
NO_ERROR = 2.0**60  # the weight of errors that are always 0, in units of the largest weight


def check_quadratic(network: Network, proof: QuadraticProof) -> None:
    """Raises Rejected unless every row, plus its offset, is proven to be positive in the region."""
    check_certificates(network, as_certificates(network, proof))


def as_certificates(network: Network, proof: QuadraticProof) -> CertificateProof:
    """The proof in the second format: every hidden neuron is treated as unstable."""
    single = all(node.inputs == (value - 1,) for value, node in network.steps())
    require(single and network.rectifiers_only, "the network is no chain of affine layers and ReLUs")
    hidden = network.preactivations
    require(bool(hidden), "the network has no ReLUs")
    sizes = [network.sizes[value] for value in hidden]
    require(len(proof.sectors) == len(hidden) - 1, "it has not the sectors of every hidden layer but the last")
    for layer, (sector, size) in enumerate(zip(proof.sectors, sizes, strict=False)):
        fits = len(sector.slope) == len(sector.width) == size
        require(fits, f"the sectors of hidden layer {layer} are not one for each neuron")
    translation = _Translation(network, proof)
    rows: list[RowEntry | None] = []
    certificates: list[CertificateEntry] = []
    for entry in proof.certificates:
        if entry is None:
            rows.append(None)
            continue
        _check_numbers(entry, network.sizes[0], sizes)
        certificate = translation.certificate(entry)
        rows.append(translation.row(entry, certificate, len(certificates)))
        certificates.append(certificate)
    claim = {field.name: getattr(proof, field.name) for field in fields(RadiusClaim)}
    return CertificateProof(
        **claim, rule=BoundingRule("crown", proof.scope), layers=translation.layers, certificates=certificates,
        row_proofs=rows, intervals={},
    )  # fmt: skip


def _check_numbers(entry: ChainCertificate, inputs: int, hidden: list[int]) -> None:
    """Refuses a certificate that has not one number per input or neuron in every list, or one of the wrong sign."""
    sizes = {
        "ball": [len(entry.ball)] == [inputs],
        "sectors": [len(numbers) for numbers in entry.sectors] == hidden[:-1],
        "weights": [len(numbers) for numbers in entry.weights] == hidden,
        "links": [len(numbers) for numbers in entry.links] == hidden,
        "tangent": [len(numbers) for numbers in entry.tangent] == [inputs, *hidden[:-1]],
    }
    wrong = [name for name, fits in sizes.items() if not fits]
    require(not wrong, f"a certificate has not one number for each input or neuron: {', '.join(wrong)}")
    multipliers = (entry.ball, *entry.sectors, *entry.weights)
    require(all(number >= 0 for numbers in multipliers for number in numbers), "a multiplier is negative")
    require(entry.rate > 0, "the rate of a certificate is not positive")


class _Translation:
    """Puts the certificates of a proof in the words of the second format."""

    def __init__(self, network: Network, proof: QuadraticProof) -> None:
        self.network, self.affine = network, fixed_layers(network)
        self.radii = _column(map(float, BallRegion.of(proof).radii))
        *followed, last = network.preactivations
        slopes = {value: sector.slope for value, sector in zip(followed, proof.sectors, strict=True)}
        slopes[last] = [0.0] * network.sizes[last]
        units = {value: (_column(table).clamp(0, 1) * 2.0**SLOPE_BITS).round() for value, table in slopes.items()}
        self.layers = {
            value: LayerEntry(list(range(len(numbers))), numbers.long().tolist(), None, SLOPE_BITS)
            for value, numbers in units.items()
        }
        self.slopes = {value: numbers * 2.0**-SLOPE_BITS for value, numbers in units.items()}
        self.widths = {value: _column(sector.width) for value, sector in zip(followed, proof.sectors, strict=True)}

    def certificate(self, entry: ChainCertificate) -> CertificateEntry:
        """The weights; that of an error which is always 0, as its sector has no width, has to be large."""
        deviations = self._by_layer(entry.weights)
        sectors = self._by_layer(entry.sectors)
        for value, width in self.widths.items():
            deviations[value] = deviations[value] + sectors[value] * width * width
        most = NO_ERROR * max(float(weights.max()) for weights in (_column(entry.ball), *deviations.values()))
        errors = {value: torch.where(width > 0, sectors[value], most) for value, width in self.widths.items()}
        return CertificateEntry(_lists(deviations), _lists(errors), entry.ball, None)

    def row(self, entry: ChainCertificate, certificate: CertificateEntry, number: int) -> RowEntry:
        """The proof of a row by the certificate of this number."""
        centres = self._by_layer(entry.tangent[1:])
        errors = {
            value: torch.where(width > 0, centres[value] / entry.rate, 0.0) for value, width in self.widths.items()
        }
        inputs, links = _column(entry.tangent[0]) / entry.rate, self._by_layer(entry.links)
        vertices, moved = dict[int, Tensor](), inputs * self.radii
        for value in range(max(links) + 1):  # A t
            if value in self.affine:
                moved = self.affine[value].linear([of_floats(moved[None])]).floats()[0]
            elif value:
                moved = self.slopes[value - 1] * moved + errors[value - 1]
            if value in links:
                vertices[value] = moved
        pulled = torch.zeros(1, dtype=torch.float64)
        for value in range(max(links), -1, -1):
            if value in links:
                weights = torch.tensor(certificate.deviations[value], dtype=torch.float64)
                pulled = self.slopes[value] * pulled - 2 * entry.rate * weights * vertices[value]
                links[value] = links[value] + pulled
            if value in self.affine:
                pulled = self.affine[value].transpose(of_floats(pulled[None])).floats()[0]
        return RowEntry(number, entry.rate, _lists(links), _finite(inputs), _lists(errors))

    def _by_layer(self, lists: list[list[float]]) -> dict[int, Tensor]:
        """Lists of the first hidden layers, by pre-activation."""
        return {value: _column(numbers) for value, numbers in zip(self.network.preactivations, lists, strict=False)}


def _column(numbers: Iterable[float]) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.float64)


def _finite(numbers: Tensor) -> list[float]:
    require(bool(numbers.isfinite().all()), "a certificate has numbers that are too large")
    finite: list[float] = numbers.tolist()
    return finite


def _lists(tables: dict[int, Tensor]) -> ByLayer:
    return {value: _finite(numbers) for value, numbers in tables.items()}
