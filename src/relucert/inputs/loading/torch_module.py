"""A network from a `torch.nn.Module` or an exported program: a copy is traced, translated, and compared with it."""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from relucert.common.checks import checked_shape, shown
from relucert.common.progress import Report, silent
from relucert.errors import InputError, LoadError, OpenShapeError, OutputsError
from relucert.inputs.loading.compare import compare, in_batches, probes
from relucert.inputs.loading.operands import PRECISIONS
from relucert.inputs.loading.outputs import Output, SelectedOutput, several
from relucert.inputs.loading.paths import one_line
from relucert.inputs.loading.torch_attention import batch_first
from relucert.inputs.loading.torch_graph import trace, translate
from relucert.inputs.loading.torch_record import UncompiledMode
from relucert.network import Network, Shape

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BATCH = 3
"""The batch size used for tracing; the comparison uses another one, so a module with a fixed batch size is noticed."""

TRAINING = (
    "it is in training mode; answers are about evaluation mode, as after eval(), where it computes something else"
)
_OMITTABLE = frozenset({torch.ops.aten._softmax, torch.ops.aten._log_softmax, torch.ops.aten.argmax})
"""The operators that torch runs for the layers that are left out at the end."""


@dataclass(frozen=True)
class Source:
    """The source of an import.

    batch: how many images it takes at once, None for any number; output: which of its outputs are the class scores.
    """

    module: nn.Module
    name: str
    batch: int | None = None
    output: Output = None

    def copy(self, evaluating: bool = True) -> nn.Module:
        """A copy that returns the selected output; in evaluation mode, or else in the module's own."""
        try:
            copied = deepcopy(self.module).cpu()
            if evaluating:
                with suppress(NotImplementedError):  # the module of an exported program has no modes
                    copied.eval()
            return copied if self.output is None else SelectedOutput(copied, self.output, self.name)
        except Exception as error:
            raise LoadError(f"{self.name} can't be copied: {one_line(error)}") from error

    @property
    def precision(self) -> torch.dtype:
        """The precision of the first stored tensor, in which the module expects its inputs."""
        stored = chain(self.module.parameters(), self.module.buffers())
        precision = next((tensor.dtype for tensor in stored if tensor.is_floating_point()), torch.float32)
        if precision not in PRECISIONS:
            raise LoadError(f"{self.name} stores {precision}; convert it to float16, bfloat16, float32 or float64")
        return precision

    def images(self, shape: Shape) -> Tensor:
        """The inputs to trace with."""
        return torch.zeros(self.batch or BATCH, *shape, dtype=self.precision)


def load_module(
    module: nn.Module, input_shape: Shape | None, report: Report = silent, output: Output = None
) -> Network:
    """The network that a module computes in evaluation mode, hooks included; only copies of the module are called."""
    name = type(module).__name__
    _check_weights(module, name)
    with torch.no_grad(), _quiet():
        source = Source(module, name, output=output)
        network = _load(source, input_shape or _guess(source), report)
        trains = _minds_training(source, network.input_shape)
    return replace(network, remarks=(*network.remarks, TRAINING)) if trains else network


def _minds_training(source: Source, shape: Shape) -> bool:
    """Whether a module was left in training mode, and computes something else there."""
    if not any(layer.training for layer in source.module.modules()):
        return False
    images = probes(shape).to(source.precision)
    with torch.random.fork_rng(devices=[]):  # of dropout
        try:
            trained = run_module(source.copy(evaluating=False), images.clone(), source.name)
        except LoadError:
            return True
    evaluated = run_module(source.copy(), images.clone(), source.name)
    return not torch.allclose(trained, evaluated, rtol=0, atol=0, equal_nan=True)


def load_program(
    program: ExportedProgram, input_shape: Shape | None, report: Report = silent, output: Output = None
) -> Network:
    """The network of the module that a program was exported from."""
    from relucert.inputs.loading.torch_export import input_axes, outermost_layer

    name = outermost_layer(program)
    batch, axes = input_axes(program, name)
    shape = tuple(axis for axis in axes if axis is not None) if input_shape is None else input_shape
    if len(shape) != len(axes) or any(axis not in (None, size) for axis, size in zip(axes, shape, strict=True)):
        shown = ", ".join("?" if axis is None else str(axis) for axis in axes)
        refusal = OpenShapeError if input_shape is None else InputError
        raise refusal(f"{name} was exported for images of shape ({shown}); pass such an input_shape")
    with torch.no_grad(), _quiet():
        return _load(Source(program.module(), name, batch, output), shape, report)


def live_network(module: nn.Module, input_shape: Shape | None = None) -> Callable[[], Network]:
    """A function that returns the module's network with its current weights; gradients flow back to the weights.

    The module is checked and traced once, here: afterwards its weights may change, but not what it computes with them.

    Args:
        module: A module that `load` understands.
        input_shape: The shape of one image, without the batch; needed where the module leaves it open.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"a torch.nn.Module is needed, not {shown(module)}")
    source = Source(module, type(module).__name__)
    shape = load_module(module, None if input_shape is None else checked_shape(input_shape)).input_shape
    with torch.no_grad(), _quiet():
        images = source.images(shape)
        program, _ = trace(batch_first(source.copy()), images, source.name)

    def current() -> Network:
        live = dict(
            chain(module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
        )
        return translate(program, images, source.name, live).network

    return current


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporter from writing logs, warnings, unfinished graphs and the process's environment, where it leaves
    the folder of its cache; what torch.compile made runs as written."""
    level, variables = logging.root.manager.disable, set(os.environ)
    compiles = "torch._dynamo" in sys.modules  # otherwise nothing is compiled, and importing it takes a second
    stance = torch.compiler.set_stance("force_eager") if compiles else nullcontext()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()), stance:
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        for name in set(os.environ) - variables:
            if name.startswith("TORCH"):
                del os.environ[name]


def _load(source: Source, shape: Shape, report: Report) -> Network:
    images = source.images(shape)
    run_module(source.copy(), images, source.name)
    program, translation = trace(batch_first(source.copy()), images, source.name)
    module, precision = _widest(source, shape, widen=not (program.casts or translation.folded))

    def run(inputs: Tensor) -> Tensor:
        return _scores(module, inputs, source.name, translation.omitted)

    original = in_batches(run, source.batch)
    compare(translation.network, original, precision, "torch", translation.casts, report, source.precision)
    return translation.network


def _check_weights(module: nn.Module, name: str) -> None:
    try:
        stored = [*module.parameters(), *module.buffers()]
    except AttributeError as error:
        raise LoadError(f"{name} is not set up: its __init__ must call super().__init__() ({error})") from error
    for tensor in stored:
        if tensor.is_complex():
            raise LoadError(f"{name} stores {tensor.dtype}; a network computes with real numbers")
        if is_lazy(tensor):
            raise LoadError(f"{name} has lazy layers without weights; call it once on some images first")
        if tensor.is_meta:
            raise LoadError(f"{name} has weights on the meta device, without values; load its weights first")


def _guess(source: Source) -> Shape:
    """The input size of the first linear layer, if the module runs on flat inputs of that size."""
    first = next((layer for layer in source.module.modules() if isinstance(layer, nn.Linear)), None)
    if first is None or first.in_features < 1:
        raise OpenShapeError(f"{source.name} does not tell the shape of its input; pass input_shape, without the batch")
    shape, module = (first.in_features,), source.copy()
    try:
        run_module(module, source.images(shape), source.name)
    except OutputsError:
        raise
    except LoadError as error:
        raise OpenShapeError(
            f"{source.name} does not tell the shape of its input; pass input_shape, without the batch "
            f"(flat images do not do: {error})"
        ) from error
    return shape


def runs_on(module: nn.Module, shape: Shape) -> bool:
    """Whether a module gives one row of scores per image of this shape; only a copy of it is called."""
    source = Source(module, type(module).__name__)
    _check_weights(module, source.name)
    with torch.no_grad(), _quiet():
        try:
            scores = run_module(source.copy(), source.images(shape), source.name)
        except OutputsError:
            raise
        except LoadError:
            return False
        return scores.ndim in (1, 2) and len(scores) == BATCH  # an arg max at the end has one number per image


def run_module(module: nn.Module, images: Tensor, name: str) -> Tensor:
    """The module's output; whatever the user's code raises becomes a LoadError of one line."""
    try:
        output = module(images)
    except LoadError:
        raise
    except Exception as error:
        shape = tuple(images.shape)
        raise LoadError(f"{name} fails on inputs of shape {shape}: {one_line(error)}") from error
    if not isinstance(output, Tensor):
        raise OutputsError(several(output, name))
    return output


def runner(module: nn.Module, shape: Shape, precision: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The function that a copy of a module computes in a precision, from one input (size,) to its outputs, flat.

    shape: of one input, without the batch.
    """
    source = Source(module, type(module).__name__)
    copied = source.copy().to(precision)

    def run(point: Tensor) -> Tensor:
        with torch.no_grad(), _quiet():
            return run_module(copied, point.to(precision).reshape(1, *shape), source.name).flatten()

    return run


class _LastInputs(UncompiledMode):
    """Keeps the inputs of every operator that may be left out, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in _OMITTABLE:
            self.inputs.append(args[0].clone())
        return func(*args, **(kwargs or {}))


def _scores(module: nn.Module, images: Tensor, name: str, omitted: int) -> Tensor:
    """The module's output before its last `left_out` layers."""
    if not omitted:
        return run_module(module, images, name)
    with _LastInputs() as recorder:
        run_module(module, images, name)
    if len(recorder.inputs) < omitted:
        raise LoadError(f"{name} can't be compared: its last layer does not run as an operator of torch")
    scores: Tensor = recorder.inputs[-omitted]
    return scores


def _widest(source: Source, shape: Shape, widen: bool) -> tuple[nn.Module, torch.dtype]:
    """The copy to compare with and its precision: float64 if the module runs in it, which shows the smallest errors."""
    if widen:
        with suppress(LoadError):
            trial = source.copy().double()
            in_batches(lambda images: run_module(trial, images, source.name), source.batch)(probes(shape)[:2].double())
            return source.copy().double(), torch.float64
    return source.copy(), source.precision
