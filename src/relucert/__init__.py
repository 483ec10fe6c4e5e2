"""relucert: within what distance can no perturbation change a ReLU network's decision?

Names are imported when first used, so that `relucert --help` need not wait for PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
"""The version of the package."""

_HOMES = {
    "Adversarial": "recipes.recipe",
    "Answers": "report.answer_list",
    "Certificate": "answers",
    "Certified": "recipes.recipe",
    "Comparison": "comparison.compare",
    "ContradictionError": "errors",
    "Distillation": "recipes.recipe",
    "Estimate": "answers",
    "Exact": "answers",
    "InputError": "errors",
    "InputWarning": "errors",
    "LipschitzBound": "answers",
    "LoadError": "errors",
    "Network": "network",
    "Progress": "progress",
    "Property": "query.property",
    "Query": "specification.query",
    "Region": "region",
    "RelucertError": "errors",
    "RemarkWarning": "errors",
    "RobustnessSummary": "verification.verdict",
    "RobustnessVerdict": "verification.verdict",
    "UpperBound": "answers",
    "Verdict": "verification.verdict",
    "Verdicts": "verification.verdict",
    "attack": "attacks.attack",
    "attack_each": "attacks.attack",
    "bounds": "api",
    "certify": "api",
    "certify_each": "api",
    "compare": "comparison.compare",
    "estimate": "clever.estimate",
    "estimate_each": "clever.estimate",
    "exact": "branch_and_bound.exact",
    "exact_each": "branch_and_bound.exact",
    "lipschitz": "lipschitz_constants",
    "live_network": "loading.torch_module",
    "load": "loading",
    "robust_at": "verification.robust",
    "robust_at_each": "verification.robust",
    "robust_loss": "training.losses",
    "save": "loading",
    "train": "training.own",
    "verify": "verification.verify",
}
_MODULES = ("data", "hardness")
__all__ = ["__version__", *_HOMES, *_MODULES]

if TYPE_CHECKING:
    from relucert import data as data
    from relucert import hardness as hardness
    from relucert.answers import Certificate as Certificate
    from relucert.answers import Estimate as Estimate
    from relucert.answers import Exact as Exact
    from relucert.answers import LipschitzBound as LipschitzBound
    from relucert.answers import UpperBound as UpperBound
    from relucert.api import bounds as bounds
    from relucert.api import certify as certify
    from relucert.api import certify_each as certify_each
    from relucert.attacks.attack import attack as attack
    from relucert.attacks.attack import attack_each as attack_each
    from relucert.branch_and_bound.exact import exact as exact
    from relucert.branch_and_bound.exact import exact_each as exact_each
    from relucert.clever.estimate import estimate as estimate
    from relucert.clever.estimate import estimate_each as estimate_each
    from relucert.comparison.compare import Comparison as Comparison
    from relucert.comparison.compare import compare as compare
    from relucert.errors import ContradictionError as ContradictionError
    from relucert.errors import InputError as InputError
    from relucert.errors import InputWarning as InputWarning
    from relucert.errors import LoadError as LoadError
    from relucert.errors import RelucertError as RelucertError
    from relucert.errors import RemarkWarning as RemarkWarning
    from relucert.lipschitz_constants import lipschitz as lipschitz
    from relucert.loading import load as load
    from relucert.loading import save as save
    from relucert.loading.torch_module import live_network as live_network
    from relucert.network import Network as Network
    from relucert.progress import Progress as Progress
    from relucert.query.property import Property as Property
    from relucert.recipes.recipe import Adversarial as Adversarial
    from relucert.recipes.recipe import Certified as Certified
    from relucert.recipes.recipe import Distillation as Distillation
    from relucert.region import Region as Region
    from relucert.report.answer_list import Answers as Answers
    from relucert.specification.query import Query as Query
    from relucert.training.losses import robust_loss as robust_loss
    from relucert.training.own import train as train
    from relucert.verification.robust import robust_at as robust_at
    from relucert.verification.robust import robust_at_each as robust_at_each
    from relucert.verification.verdict import RobustnessSummary as RobustnessSummary
    from relucert.verification.verdict import RobustnessVerdict as RobustnessVerdict
    from relucert.verification.verdict import Verdict as Verdict
    from relucert.verification.verdict import Verdicts as Verdicts
    from relucert.verification.verify import verify as verify


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
