"""Types of the arguments of public calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils.data
from numpy.typing import ArrayLike
from torch import Tensor

from relucert.common.names import TargetName
from relucert.common.numbers import NumberLike
from relucert.data import Dataset
from relucert.inputs.loading.runtime import Loaded, Source

NetworkLike = Source | Loaded
"""A network, a module, a program of torch.export, an .onnx or a .safetensors file, or the name of a zoo network."""

ImagesLike = ArrayLike | Tensor | Dataset | torch.utils.data.Dataset[Any] | torch.utils.data.DataLoader[Any]
"""An array or a tensor, one row per image, or a data set of images and labels."""

LabelsLike = Sequence[int] | ArrayLike | Tensor
"""One class per image."""

TargetLike = TargetName | int | Sequence[int] | ArrayLike | Tensor
"""A target's name, one class for all images, or one class per image."""

BoxLike = tuple[NumberLike, NumberLike] | tuple[ArrayLike | Tensor, ArrayLike | Tensor]
"""The lowest and the highest valid value: two numbers, or two arrays of the input's shape."""

ScaleLike = ArrayLike | Tensor
"""An array of the input's shape."""
