"""A plain module's program, recorded while it runs: a hundredth of a second where torch.export takes two.

Symbolic tracing (torch.fx) first shows that nothing the module does depends on the values of its input. What it runs
is then what it always runs, so ATen's operators are written down in one evaluation. Modules of any other kind, and
whatever the tracer would have to take for a constant, are left to torch.export.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from relucert.inputs.loading.torch_attention import MultiheadAttention

LAYERS = "torch.nn.modules."  # modules of this package do the same whatever their input is, in evaluation mode
FUNCTIONS = {"torch", "torch.functional", "torch.nn.functional", "torch._C._nn", "_operator", "math"}
CASTS = {"to", "type", "type_as", "half", "bfloat16", "float", "double"}  # which may do nothing where they are recorded
NUMBERS = {"item", "tolist", "numpy", "__array__"}  # which leave torch with the values of an input
WHOLE = {
    "bilinear", "einsum", "gru", "instance_norm", "linear", "lstm", "matmul", "rnn_relu", "rnn_tanh",
    "scaled_dot_product_attention", "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
}  # fmt: skip
"""Operators that are written down whole, as torch.export tells them: the first joins positions with the batch on its
way, the others run several operators. Where something acts in place, linear layers are not told whole."""
COMPONENTS = {"bmm", "baddbmm", "expand", "mean", "_to_copy"}
"""Operators that may be components of larger ones (a product, a normalisation, a softmax that casts), which
torch.export tells whole: a module is to be the same network, with the same SHA-256, whoever traced it."""
STEPS: dict[str, set[Any]] = {
    "mean": {"mean", torch.mean},
    "expand": {"expand", "expand_as"},
    "bmm": {"bmm", torch.bmm},
}
"""By operator, the steps in which it is no component of another one."""
POOLINGS = {nn.AdaptiveAvgPool2d, nn.functional.adaptive_avg_pool2d}  # which run as a mean where they pool all


def record(module: nn.Module, images: Tensor) -> TracedProgram | None:
    """The module's program; None where it is not certain that the recording says what the module always does.

    It is certain where the module is made of PyTorch's own layers and functions, calls nothing else, and runs the very
    operators that were traced when it is called itself: code may see that it is traced.
    """
    watched, functional = watch(module, images), watch(module, images, functional=True)
    if functional.error or watched.asks_for_values or functional.asks_for_values or not _is_plain(module):
        return None
    in_place = watched.acts_in_place
    if in_place:
        watched = functional
    try:
        module = deepcopy(module)  # as tracing may leave something in it
        tracer = _Tracer()
        tracer.proxy_buffer_attributes = True
        graph = tracer.trace(module)
    except Exception:  # whatever the module's code raises when its input has no values
        return None
    if not all(_is_certain(node, module) for node in graph.nodes):
        return None
    recorder = _Recorder(module, images)
    try:
        with _before_decomposition(), recorder:
            run = _Interpreter(fx.GraphModule(module, graph), recorder).run
            output = (torch.func.functionalize(run) if in_place else run)(images)
    except Exception:  # what only runs outside of such a trace
        return None
    return recorder.program(output) if recorder.operators == watched.operators else None


def _is_plain(module: nn.Module) -> bool:
    """Whether nothing but `forward` runs when a layer is called: no hook, no compiled or scripted code."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return not any(
        isinstance(layer, torch.jit.ScriptModule | fx.GraphModule)
        or "forward" in vars(layer)
        or getattr(layer, "_compiled_call_impl", None) is not None
        or any(getattr(layer, name) for name in hooks)
        for layer in module.modules()
    )


def _is_certain(node: fx.Node, module: nn.Module) -> bool:
    """Whether a step of the traced module is PyTorch's own, and no number was computed while tracing."""
    if any(callable(leaf) and not isinstance(leaf, fx.Node) for leaf in tree_leaves((node.args, node.kwargs))):
        return False
    if node.op == "call_module":
        return all(_is_layer(layer) for layer in module.get_submodule(str(node.target)).modules())
    if node.op == "call_function":
        return node.target is getattr or getattr(node.target, "__module__", None) in FUNCTIONS
    if node.op == "call_method":
        return node.target not in CASTS | NUMBERS
    if node.op == "get_attr":
        return not str(node.target).startswith("_tensor_constant")
    return True


def _is_layer(module: nn.Module) -> bool:
    """Whether a module, apart from those within it, is PyTorch's own, and so is every function that was given to it."""
    functions = [entry for entry in vars(module).values() if callable(entry)]
    own = type(module).__module__.startswith(LAYERS) or isinstance(module, MultiheadAttention)
    return own and all(getattr(entry, "__module__", None) in FUNCTIONS for entry in functions)


def _picks_by_number(func: Any, args: Any) -> bool:
    """Whether an index, which may be a mask, is one of whole numbers."""
    if func is not torch.ops.aten.index.Tensor:
        return False
    return not any(
        isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in tree_leaves(args[1])
    )


class _Tracer(fx.Tracer):
    """Takes our attention for the layer of PyTorch that it stands for."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, MultiheadAttention) or super().is_leaf_module(m, module_qualified_name)


def _before_decomposition() -> AbstractContextManager[Any]:
    """A context in which modes see operators before they are replaced by those that they run."""
    return torch._C._AutoDispatchBelowAutograd()


class _Interpreter(fx.Interpreter):
    """Runs a traced module, and tells the recorder which layer and step it is in."""

    def __init__(self, module: fx.GraphModule, recorder: _Recorder) -> None:
        super().__init__(module)
        self.recorder = recorder

    def run_node(self, n: fx.Node) -> Any:
        stack = n.meta.get("nn_module_stack") or {}
        self.recorder.layers = {key: (path, layer_type.__name__) for key, (path, layer_type) in stack.items()}
        self.recorder.step = type(self.module.get_submodule(str(n.target))) if n.op == "call_module" else n.target
        return super().run_node(n)


class UncompiledMode(TorchDispatchMode):
    """A mode that sees every operator of ATen; it does not import the compiler, which would take a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def watch(module: nn.Module, images: Tensor, functional: bool = False) -> OperatorRecorder:
    """The operators that run when a copy of the module is called, up to an error, if it raises one.

    functional: whether operators that act in place are replaced by others.
    """
    images = images.clone()
    watched = OperatorRecorder(images)
    try:
        called: Any = deepcopy(module)
        if functional:
            called = torch.func.functionalize(called)
        with _before_decomposition(), watched:
            called(images)
    except Exception as error:
        watched.error = error
    return watched


class OperatorRecorder(UncompiledMode):
    """Lists the operators that run, as the recorder does, and notices where values of the input are handed to Python,
    whose code may branch on them, where an operator acts in place, and what error ended the run."""

    def __init__(self, images: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators: list[str] = []
        self.asks_for_values = self.acts_in_place = False
        self.error: Exception | None = None
        self._computed = {id(images): images}  # from the input, held so that no other tensor gets their identity

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_made_of_others(func):
            with self:
                return func.decompose(*args, **kwargs)
        return self.take(func, args, kwargs)

    def take(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Runs an operator."""
        computed = any(id(leaf) in self._computed for leaf in tree_leaves((args, kwargs)))
        self.asks_for_values |= computed and func is torch.ops.aten._local_scalar_dense.default
        self.acts_in_place |= func._schema.is_mutable
        result = func(*args, **kwargs)
        self.operators.append(str(func))
        tensors = [entry for entry in tree_leaves(result) if isinstance(entry, Tensor)]
        if isinstance(result, tuple | list):
            self.operators += [str(operator.getitem)] * len(tensors)
        if computed:
            self._computed |= {id(entry): entry for entry in tensors}
        return result


def _is_made_of_others(func: Any) -> bool:
    """Whether an operator is one that runs others, which are told in its place."""
    whole = func._schema.name.removeprefix("aten::") in WHOLE
    return not whole and func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


class _Recorder(OperatorRecorder):
    """Writes down every operator of ATen that runs, as a node of a graph.

    layers, step: The layers that the traced module is in, and its current step: a class of layers, a function, or the
    name of a method.
    """

    def __init__(self, module: nn.Module, images: Tensor) -> None:
        super().__init__(images)
        self.graph = fx.Graph()
        self.layers: dict[str, tuple[str, str]] = {}
        self.step: Any = None
        self.nodes: dict[int, fx.Node] = {}  # they hold the tensors, so that no other tensor gets their identity
        self.stored: dict[str, str] = {}
        self.tensors: dict[str, Tensor] = {}
        self.certain = True
        self.image = self._placeholder(images, "image").name
        for name, tensor in chain(module.named_parameters(), module.named_buffers()):
            self.stored[self._placeholder(tensor, "stored").name] = name
            self.tensors[name] = tensor

    def _placeholder(self, tensor: Tensor, name: str) -> fx.Node:
        node = self.graph.placeholder(name)
        self._keep(tensor, node)
        return node

    def _keep(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta = {"val": tensor, "nn_module_stack": dict(self.layers)}
        self.nodes[id(tensor)] = node

    def _told(self, argument: Any) -> Any:
        """An argument as the graph has it; a tensor from elsewhere makes the recording uncertain."""
        if not isinstance(argument, Tensor):
            return argument
        if id(argument) not in self.nodes:
            self.certain = False
            return None
        return self.nodes[id(argument)]

    def take(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = super().take(func, args, kwargs)
        if func is torch.ops.aten.mean.dim and self.step in POOLINGS and (args[1:], kwargs) == (([-1, -2], True), {}):
            func, args, kwargs = torch.ops.aten.adaptive_avg_pool2d.default, (args[0], [1, 1]), {}
        told_args, told_kwargs = tree_map(self._told, (tuple(args), kwargs))
        shaped_by_values = torch.Tag.dynamic_output_shape in func.tags and not _picks_by_number(func, args)
        if func._schema.is_mutable or shaped_by_values or self._is_component(func):
            self.certain = False
        node = self.graph.call_function(func, told_args, told_kwargs)
        if isinstance(result, Tensor):
            self._keep(result, node)
            return result
        node.meta = {"val": result, "nn_module_stack": dict(self.layers)}
        for number, entry in enumerate(result if isinstance(result, tuple | list) else ()):
            if isinstance(entry, Tensor):
                self._keep(entry, self.graph.call_function(operator.getitem, (node, number)))
        return result

    def _is_component(self, func: Any) -> bool:
        """Whether an operator may be a component of a larger one."""
        name = func._schema.name.removeprefix("aten::")
        return name in COMPONENTS and self.step not in STEPS.get(name, ())

    def program(self, output: Any) -> TracedProgram | None:
        if not self.certain or not isinstance(output, Tensor) or id(output) not in self.nodes:
            return None
        return TracedProgram(list(self.graph.nodes), self.image, self.stored, self.tensors, self.nodes[id(output)].name)


@dataclass(frozen=True)
class TracedProgram:
    """A graph of calls without in-place operators.

    Attributes:
        nodes: The graph's nodes in order; `meta["val"]` has the shape of a result, `meta["nn_module_stack"]` the layers
            that a call is in, outermost first, as (path, class).
        image: The name of the node that stands for the images.
        stored: By the names of nodes that stand for the module's tensors, the tensors' own names.
        tensors: By the tensors' own names, those that were traced.
        output: The name of the node whose result is the module's.
        casts: Whether the module's code casts to a fixed precision anywhere, or has an epsilon that is the precision's:
            in float64 it would compute something else.
    """

    nodes: Sequence[Node]
    image: str
    stored: Mapping[str, str]
    tensors: Mapping[str, Tensor]
    output: str
    casts: bool = False
