"""What users hand in, as types."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from numpy.typing import ArrayLike
from torch import Tensor

from relucert.data import Dataset
from relucert.loading.runtime import Loaded
from relucert.network import Network

if TYPE_CHECKING:
    from torch.export import ExportedProgram
else:
    ExportedProgram = object  # its module takes a second to import

NetworkLike = Network | Loaded | torch.nn.Module | ExportedProgram | str | os.PathLike[str]
"""A network, a module, a program of torch.export, an .onnx or a .safetensors file, or the name of a zoo network."""

ImagesLike = ArrayLike | Tensor | Dataset | torch.utils.data.Dataset[Any] | torch.utils.data.DataLoader[Any]
"""An array or a tensor, one row per image, or a data set of images and labels."""

LabelsLike = Sequence[int] | ArrayLike | Tensor
"""One class per image."""

TargetLike = str | int | Sequence[int] | ArrayLike | Tensor
"""A target's name, one class for all images, or one class per image."""

BoxLike = tuple[float, float] | tuple[ArrayLike | Tensor, ArrayLike | Tensor]
"""The lowest and the highest valid value: two numbers, or two arrays of the input's shape."""

ScaleLike = ArrayLike | Tensor
"""An array of the input's shape."""
