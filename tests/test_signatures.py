"""What tab completion, `help` and editors see: every public name, and every parameter written out."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import relucert
from relucert.cli import attack, certify, compare, estimate, exact, verify
from relucert.cli.main import build_parser
from relucert.common import names
from relucert.experiments.comparison.methods import Setting

COMMANDS: dict[str, tuple[str, ...]] = {
    "certify": certify.LIBRARY_OPTIONS,
    "attack": attack.LIBRARY_OPTIONS,
    "exact": exact.LIBRARY_OPTIONS,
    "estimate": estimate.LIBRARY_OPTIONS,
    "compare": ("norm", "methods", *compare.SETTING_OPTIONS),
}
LIBRARY_ONLY = {"network", "images", "labels", "progress", "property", "input_shape", "store"}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function of the public face, and the public methods of its classes that are our own."""
    modules = {"relucert": relucert, "relucert.data": relucert.data, "relucert.hardness": relucert.hardness}
    for home, module in modules.items():
        names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
        for name in names:
            value = getattr(module, name)
            if not hasattr(module, "__all__") and getattr(value, "__module__", None) != home:
                continue  # imported for the module's own use
            if inspect.isfunction(value):
                yield f"{home}.{name}", value
            elif inspect.isclass(value) and value.__module__.startswith("relucert"):
                for method, function in inspect.getmembers(value, inspect.isroutine):
                    if not method.startswith("_") and str(getattr(function, "__module__", "")).startswith("relucert"):
                        yield f"{home}.{name}.{method}", function


FUNCTIONS = dict(public_functions())


def test_dir_shows_the_public_names_and_imports_nothing() -> None:
    code = (
        "import sys, relucert\n"
        "missing = set(relucert.__all__) - set(dir(relucert))\n"
        "assert not missing, missing\n"
        "assert not {name for name in dir(relucert) if name.startswith('_') and not name.startswith('__')}\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there() -> None:
    for name in relucert.__all__:
        assert getattr(relucert, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'certfy'"):
        relucert.certfy  # noqa: B018


def test_editors_see_what_is_imported_when_first_used() -> None:
    """The imports for type checkers are those of the table."""
    tree = ast.parse(Path(str(relucert.__file__)).read_text())
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.asname for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == {*relucert.__all__} - {"__version__"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_public_function_hides_its_parameters(name: str) -> None:
    parameters = inspect.signature(FUNCTIONS[name]).parameters.values()
    hidden = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    assert [parameter.name for parameter in parameters if parameter.kind in hidden] == []


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name.count(".") == 1])
def test_every_parameter_has_a_type_and_every_function_a_docstring(name: str) -> None:
    function = FUNCTIONS[name]
    hints = typing.get_type_hints(function)
    assert set(inspect.signature(function).parameters) <= set(hints)
    assert "return" in hints
    assert function.__doc__


@pytest.mark.parametrize("name", ["certify", "attack", "exact", "estimate", "robust_at"])
def test_answers_one_by_one_take_the_same_options(name: str) -> None:
    call, each = (inspect.signature(getattr(relucert, called)) for called in (name, f"{name}_each"))
    assert list(call.parameters.values()) == list(each.parameters.values())
    needed = [parameter.name for parameter in each.parameters.values() if parameter.default is parameter.empty]
    with pytest.raises(TypeError, match="epsilno"):
        getattr(relucert, f"{name}_each")(**dict.fromkeys(needed), epsilno=0.1)


def _meanings(name: str) -> dict[str, str]:
    """What the docstring of a call says of each parameter."""
    arguments = str(inspect.getdoc(getattr(relucert, name))).split("Args:\n")[1].split("\n\n")[0]
    entries = re.findall(r"^    (\w+): ((?:.|\n        )*)", arguments, re.MULTILINE)
    return {parameter: " ".join(words.split()) for parameter, words in entries}


OWN_MEANINGS = {
    "attack": {"method", "time_limit"},
    "exact": {"norm", "tolerance", "time_limit"},
    "estimate": {"radius", "batches", "samples"},
    "compare": {"samples", "batches", "budget"},
    "robust_at": {"radius", "time_limit"},
}  # parameters that mean something else there, or that another call has under the same name


@pytest.mark.parametrize("name", OWN_MEANINGS)
def test_parameters_that_calls_share_are_described_alike(name: str) -> None:
    """In the words of `certify`, more words after them, or with a reference to it."""
    certified, here = _meanings("certify"), _meanings(name)
    assert set(here) == set(inspect.signature(getattr(relucert, name)).parameters)
    for parameter in (here.keys() & certified.keys()) - OWN_MEANINGS[name] - {"seed", "memory"}:
        words = here[parameter]
        refers = re.search(r"\b[Aa]s for `(certify|verify)`", words)
        assert refers or words.startswith(certified[parameter].rstrip(".")), parameter


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_has_the_options_of_the_library(name: str) -> None:
    parameters = inspect.signature(getattr(relucert, name)).parameters
    assert set(COMMANDS[name]) <= set(parameters)
    given = vars(build_parser().parse_args([name]))
    for option in set(parameters) - LIBRARY_ONLY:
        assert given[option] == parameters[option].default, option


def test_verify_has_the_options_of_robust_at() -> None:
    parameters = inspect.signature(relucert.robust_at).parameters
    assert set(verify.LIBRARY_OPTIONS) <= set(parameters)
    given = vars(build_parser().parse_args(["verify", "--radius", "0.5"]))
    for option in set(parameters) - LIBRARY_ONLY - {"radius", "time_limit"}:
        assert given[option] == parameters[option].default, option
    assert parameters["time_limit"].default == verify.TIME_LIMIT


def test_a_comparison_takes_the_fields_of_its_setting() -> None:
    parameters = inspect.signature(relucert.compare).parameters
    for field in Setting.__dataclass_fields__.values():
        assert field.name in parameters
        if field.name != "norm":
            assert parameters[field.name].default == field.default


@pytest.mark.parametrize(
    "name", [*COMMANDS, "bounds", "lipschitz", "load", "robust_at", "robust_loss", "train", "verify"]
)
def test_an_unknown_option_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match="epsilno"):
        getattr(relucert, name)(epsilno=0.1)


@pytest.mark.parametrize(
    ("name", "parameter", "literal"),
    [
        *((name, "inference", names.InferenceName) for name in ("certify", "attack", "exact", "compare", "verify")),
        *((name, "arithmetic", names.ArithmeticName) for name in ("certify", "bounds", "lipschitz")),
        ("certify", "method", names.MethodName),
        ("bounds", "method", names.RelaxerName),
        ("bounds", "form", names.FormName),
        ("attack", "method", names.AttackName),
        ("lipschitz", "method", names.LipschitzName),
        ("robust_loss", "method", names.LossBounds),
    ],
)
def test_parameters_that_are_names_have_them_as_their_type(name: str, parameter: str, literal: object) -> None:
    assert typing.get_type_hints(getattr(relucert, name))[parameter] == literal
