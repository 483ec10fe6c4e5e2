"""Convolutional networks of the field's competition, certified at the centres of their properties."""

import pytest
import torch

import relucert
from tests.regions import samples
from tests.shared import SHARED

VNNCOMP = SHARED / "vnncomp"
QUESTIONS = {
    "oval21": ("cifar_base_kw.onnx", "cifar_base_kw-img2578-eps0.021176470588235297.vnnlib"),
    "resnet": ("resnet_2b.onnx", "prop_0_eps_0.008.vnnlib"),
    "average pooling": ("Convnet_avgpool.onnx", "avgpool_prop_0_0.02.vnnlib"),
    "maximum pooling": ("Convnet_maxpool.onnx", "maxpool_prop_0_0.004.vnnlib"),
}


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["inf", "2", "1"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_certified_centres_keep_their_class(name: str, norm: str) -> None:
    folder = VNNCOMP / ("verivital" if "pooling" in name else name)
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    model, question = QUESTIONS[name]
    network = relucert.load(folder / "onnx" / model)
    (violation, *_) = relucert.Query.read(folder / "vnnlib" / question).violations
    middles = [float((low + high) / 2) for low, high in zip(violation.low, violation.high, strict=True)]
    centre = torch.tensor(middles, dtype=torch.float64).reshape(1, *network.input_shape)
    (answer,) = relucert.certify(network, centre, norm=norm)
    assert answer.radius is not None
    assert answer.radius > 0
    region = relucert.Region.around(centre.flatten(1), answer.radius, norm)
    scores = network.cast(torch.float64)(samples(region, 0, 200, torch.Generator().manual_seed(0)))
    assert answer.label is not None
    assert bool((scores.argmax(1) == answer.label).all())
    (attacked,) = relucert.attack(network, centre, norm=norm, method="pgd")
    assert attacked.distance is None or answer.radius <= attacked.distance
