"""The table of the methods that certify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from relucert.arithmetic.rigor import Arithmetic
from relucert.bounding.relaxers import CROWN, FAST_LIN, RELAXERS
from relucert.common import names
from relucert.common.names import MethodName
from relucert.common.progress import Report, silent
from relucert.errors import InputError
from relucert.methods.alpha import AlphaMethod
from relucert.methods.interval import IntervalMethod
from relucert.methods.linear import LinearMethod
from relucert.methods.lipschitz import LipschitzMethod, fast_lip
from relucert.methods.lipschitz_norm import LipschitzNorm
from relucert.methods.method import Method
from relucert.methods.operator_norm import OperatorNorm
from relucert.methods.programs import ProgramMethod
from relucert.methods.sdp import QuadraticMethod
from relucert.network import Inference, Network
from relucert.network.fused_activations import fuse_activations

METHODS: dict[MethodName, Callable[[], Method]] = {
    **{names.METHODS.find(name): partial(LinearMethod, name, relaxer) for name, relaxer in RELAXERS.items()},
    "interval": lambda: IntervalMethod("interval"),
    "fast-lip": lambda: LipschitzMethod("fast-lip", fast_lip),
    "lipschitz-norm": lambda: LipschitzMethod("lipschitz-norm", LipschitzNorm()),
    "op-norm": lambda: LipschitzMethod("op-norm", OperatorNorm(), shells=1, local=False),
    # Fast-Lin from where CROWN ends: the larger of their radii.
    "alpha": lambda: AlphaMethod("alpha", LinearMethod("fast-lin", FAST_LIN, LinearMethod("crown", CROWN))),
    "lp": lambda: ProgramMethod("lp", LinearMethod("fast-lin", FAST_LIN)),
    "lp-full": lambda: ProgramMethod("lp-full", ProgramMethod("lp", METHODS["alpha"]()), full=True),
    "sdp": lambda: QuadraticMethod("sdp", LinearMethod("crown", CROWN)),
}


def check_inference(method: Method, inference: Inference) -> None:
    """Refuses a method whose bounds are about real arithmetic alone, where another evaluation is asked about."""
    if inference.rounds and not method.takes_inference:
        others = ", ".join(name for name, make in METHODS.items() if make().takes_inference)
        raise InputError(
            f"the method {method.name!r} proves nothing about evaluations in {inference.name}; choose one of {others}, "
            "or inference 'real'"
        )


def suited_network(method: Method, network: Network, proof: Arithmetic) -> Network:
    """The network as a method bounds it: for linear relaxations and intervals with every leaky ReLU, clip and the like
    as one activation, unless it is evaluated in floating point or a proof file is about its operations as stored.

    Refuses a method for ReLU alone where the network has another activation.
    """
    if method.needs_rectifiers:
        check_rectifiers(network, f"the method {method.name!r}")
    if isinstance(method, QuadraticMethod):
        _check_single_functions(network, method)
    stored = network.inference.rounds or proof.recorded
    return fuse_activations(network) if isinstance(method, LinearMethod | IntervalMethod) and not stored else network


def _check_single_functions(network: Network, method: Method) -> None:
    """Refuses a network in which one value goes through two different activations."""
    functions: dict[int, tuple[str, dict[str, Any]]] = {}
    for value, activation in network.activations.items():
        source, function = network.source(value), (activation.name, activation.settings())
        if functions.setdefault(source, function) != function:
            raise InputError(
                f"the method {method.name!r} needs one activation of a value, and value {source} feeds "
                f"{functions[source][0]} and {activation.name}"
            )


def check_rectifiers(network: Network, what: str) -> None:
    """Refuses what is for ReLU alone where the network has another activation, naming the methods that take any."""
    for value, activation in network.activations.items():
        if not activation.rectifier:
            others = ", ".join(name for name, make in METHODS.items() if not make().needs_rectifiers)
            raise InputError(
                f"{what} needs ReLU as the only activation, and value {value} is {activation.name}; "
                f"methods for any activation are {others}"
            )


def find_method(
    name: str, shells: int | None = None, time_limit: float | None = None, report: Report = silent
) -> Method:
    """A method of its own for every call: what it remembers of a network is never shared.

    report: Called with how far its costly steps are.
    """
    method, options = METHODS[names.METHODS.find(name)](), dict[str, Any](report=report)
    if shells is not None:
        if not isinstance(method, LipschitzMethod) or not method.local:
            raise InputError(f"the method {name!r} has no shells; leave them out")
        options["shells"] = shells
    if time_limit is not None:
        if not isinstance(method, ProgramMethod):
            raise InputError(f"the method {name!r} has no programs with a time limit; leave it out")
        options["time_limit"] = time_limit
    return _with_options(method, options)


def _with_options(method: Method, options: dict[str, Any]) -> Method:
    """A method, and all that it starts from, each with those of some options that it has."""
    changes = {name: option for name, option in options.items() if hasattr(method, name)}
    if method.weaker is not None:
        changes["weaker"] = _with_options(method.weaker, options)
    return replace(method, **changes)  # type: ignore[type-var]
