"""Recurrent layers, by the names of ATen."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from relucert.errors import UnsupportedError
from relucert.inputs.loading.assembly import Assembly
from relucert.inputs.loading.lowering import recurrent
from relucert.inputs.loading.operands import Operand
from relucert.inputs.loading.torch_rules.call import TorchCall, TorchRule
from relucert.network import Tanh

_FIRST = "batch_first=False: build it with batch_first=True, for (batch, steps, inputs)"


def _recurrent(assembly: Assembly, call: TorchCall, cell: recurrent.Cell) -> Operand:
    arguments = call.arguments
    flaws = {
        _FIRST: not arguments["batch_first"],
        "bidirectional=True": arguments["bidirectional"],
        "dropout in training": arguments["train"] and arguments["dropout"],
    }
    if any(flaws.values()):
        raise UnsupportedError(", ".join(flaw for flaw, occurs in flaws.items() if occurs))
    count = arguments["num_layers"]
    first = _constants(call, "hx") if isinstance(arguments["hx"], list | tuple) else [call.constant("hx")]
    states = [[state[layer] for state in first] for layer in range(count)]
    return recurrent.unrolled(assembly, call.operand("input"), cell, _layers(call), states)


def _layers(call: TorchCall) -> list[recurrent.CellWeights]:
    """The weights of every layer, and its biases where it has any."""
    stored, count = _constants(call, "params"), call.arguments["num_layers"]
    each = 4 if call.arguments["has_biases"] else 2
    if len(stored) != count * each:
        raise UnsupportedError(f"{len(stored)} weights of {count} layers, as with a proj_size")
    return [recurrent.CellWeights(*stored[first : first + each]) for first in range(0, len(stored), each)]


def _constants(call: TorchCall, name: str) -> list[Tensor]:
    """The constants of a list."""
    operands = call.operands(name)
    constants = [operand for operand in operands if isinstance(operand, Tensor)]
    if len(constants) < len(operands):
        raise UnsupportedError(f"a computed {name}")
    return constants


_ARGUMENTS = (
    "input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first",
)  # fmt: skip
_CELLS: dict[str, recurrent.Cell] = {
    "rnn_tanh.input": recurrent.elman(lambda assembly, value: assembly.activation(Tanh(), value)),
    "rnn_relu.input": recurrent.elman(Assembly.relu),
    "lstm.input": recurrent.long_short_term,
    "gru.input": recurrent.gated,
}

RULES: dict[str, TorchRule] = {
    name: TorchRule(partial(_recurrent, cell=cell), _ARGUMENTS) for name, cell in _CELLS.items()
}
