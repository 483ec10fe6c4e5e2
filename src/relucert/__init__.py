"""relucert: within what distance can no perturbation change a ReLU network's decision?

Names are imported when first used, so that `relucert --help` need not wait for PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
"""The version of the package."""

_HOMES = {
    "Adversarial": "inputs.recipes.recipe",
    "Answers": "report.answer_list",
    "Certificate": "answers.certificates",
    "Certified": "inputs.recipes.recipe",
    "Comparison": "experiments.comparison.compare",
    "ContradictionError": "errors",
    "Distillation": "inputs.recipes.recipe",
    "Estimate": "answers.certificates",
    "Exact": "answers.certificates",
    "InputError": "errors",
    "InputWarning": "errors",
    "LipschitzBound": "answers.certificates",
    "LoadError": "errors",
    "Network": "network",
    "Progress": "common.progress",
    "Property": "arithmetic.property",
    "Query": "verification.specification.query",
    "Region": "arithmetic.region",
    "RelucertError": "errors",
    "RemarkWarning": "errors",
    "RobustnessSummary": "report.verdict_list",
    "RobustnessVerdict": "answers.verdicts",
    "UpperBound": "answers.certificates",
    "Verdict": "answers.verdicts",
    "Verdicts": "report.verdict_list",
    "attack": "api.attack",
    "attack_each": "api.attack",
    "bounds": "api.bounds",
    "certify": "api.certify",
    "certify_each": "api.certify",
    "compare": "experiments.comparison.compare",
    "estimate": "api.estimate",
    "estimate_each": "api.estimate",
    "exact": "api.exact",
    "exact_each": "api.exact",
    "lipschitz": "api.lipschitz",
    "live_network": "inputs.loading.torch_module",
    "load": "inputs.loading",
    "robust_at": "api.robust",
    "robust_at_each": "api.robust",
    "robust_loss": "training.losses",
    "save": "inputs.loading",
    "train": "training.user_module",
    "verify": "api.verify",
}
_MODULES = ("data", "hardness")
__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from relucert import data as data
    from relucert import hardness as hardness
    from relucert.answers.certificates import Certificate as Certificate
    from relucert.answers.certificates import Estimate as Estimate
    from relucert.answers.certificates import Exact as Exact
    from relucert.answers.certificates import LipschitzBound as LipschitzBound
    from relucert.answers.certificates import UpperBound as UpperBound
    from relucert.answers.verdicts import RobustnessVerdict as RobustnessVerdict
    from relucert.answers.verdicts import Verdict as Verdict
    from relucert.api.attack import attack as attack
    from relucert.api.attack import attack_each as attack_each
    from relucert.api.bounds import bounds as bounds
    from relucert.api.certify import certify as certify
    from relucert.api.certify import certify_each as certify_each
    from relucert.api.estimate import estimate as estimate
    from relucert.api.estimate import estimate_each as estimate_each
    from relucert.api.exact import exact as exact
    from relucert.api.exact import exact_each as exact_each
    from relucert.api.lipschitz import lipschitz as lipschitz
    from relucert.api.robust import robust_at as robust_at
    from relucert.api.robust import robust_at_each as robust_at_each
    from relucert.api.verify import verify as verify
    from relucert.arithmetic.property import Property as Property
    from relucert.arithmetic.region import Region as Region
    from relucert.common.progress import Progress as Progress
    from relucert.errors import ContradictionError as ContradictionError
    from relucert.errors import InputError as InputError
    from relucert.errors import InputWarning as InputWarning
    from relucert.errors import LoadError as LoadError
    from relucert.errors import RelucertError as RelucertError
    from relucert.errors import RemarkWarning as RemarkWarning
    from relucert.experiments.comparison.compare import Comparison as Comparison
    from relucert.experiments.comparison.compare import compare as compare
    from relucert.inputs.loading import load as load
    from relucert.inputs.loading import save as save
    from relucert.inputs.loading.torch_module import live_network as live_network
    from relucert.inputs.recipes.recipe import Adversarial as Adversarial
    from relucert.inputs.recipes.recipe import Certified as Certified
    from relucert.inputs.recipes.recipe import Distillation as Distillation
    from relucert.network import Network as Network
    from relucert.report.answer_list import Answers as Answers
    from relucert.report.verdict_list import RobustnessSummary as RobustnessSummary
    from relucert.report.verdict_list import Verdicts as Verdicts
    from relucert.training.losses import robust_loss as robust_loss
    from relucert.training.user_module import train as train
    from relucert.verification.specification.query import Query as Query


def __dir__() -> list[str]:
    """The public names, also those that nothing has used yet."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"relucert.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'relucert' has no attribute {name!r}")
    value = getattr(import_module(f"relucert.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
