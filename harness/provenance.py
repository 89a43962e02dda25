"""What a record states about the code of a run: versions, source digests, declared failures."""

import hashlib
import inspect
import sys
from collections.abc import Iterable
from importlib import metadata
from types import ModuleType

from harness.environment import describe
from harness.plan import Plan
from harness.records.cost import CostSpec
from harness.records.record import Environment
from harness.records.spec import RunSpec
from tasks.registry import tasks
from zoo.registry import Value, resolve
from zoo.variants import variants


def environment_of(plan: Plan) -> Environment:
    """The environment of a run, with the versions of the plug-ins and packages that it uses."""
    environment, versions = describe(plan.spec.device), dict(tasks.package(plan.spec.task.name))
    for name in plan.spec.variants:
        versions |= variants.package(name)
    versions |= {name: metadata.version(name) for name in plan.task.packages}
    return environment.model_copy(update={"versions": environment.versions | versions})


def implementations(names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the source of each variant, by variant; none where it has no source.

    The source is the variant's module and the modules of its package that it uses,
    directly or through others, in order of their names.
    """
    digests = {name: source_digest(variants.find(name)) for name in names}
    return {name: digest for name, digest in digests.items() if digest}


def source_digest(variant: type) -> str:
    """SHA-256 of the sources of a variant, see `implementations`; empty where it has none."""
    try:
        modules = used_by(sys.modules[variant.__module__])
        sources = map(inspect.getsource, sorted(modules, key=lambda one: one.__name__))
        return hashlib.sha256("".join(sources).encode()).hexdigest()
    except (OSError, TypeError, KeyError):
        return ""


def options_of(spec: RunSpec | CostSpec) -> dict[str, dict[str, Value]]:
    """Every option of every variant of a run or a measurement, by variant."""
    options = spec.options.items()
    return {name: resolve(name, variants.find(name), changed) for name, changed in options}


def used_by(module: ModuleType) -> set[ModuleType]:
    """The module, and the modules of its package whose objects it has, directly or indirectly."""
    package = module.__name__.partition(".")[0]
    found, left = set(), [module]
    while left:
        one = left.pop()
        if one in found or one.__name__.partition(".")[0] != package:
            continue
        found.add(one)
        for value in list(vars(one).values()):
            name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
            if isinstance(name, str) and name in sys.modules:
                left.append(sys.modules[name])
    return found


def expected_failures_of(plan: Plan) -> dict[str, str]:
    """The check failures that the variants of a run declare, by variant and check."""
    return {
        f"{name}: {check}": reason
        for name in plan.spec.variants
        for check, reason in variants.find(name)
        .expected_failures_of(causal=plan.task.causal)
        .items()
    }


def is_foreign(names: Iterable[str]) -> bool:
    """Whether a variant is of another package than `zoo`."""
    modules = [variants.find(name).__module__ for name in names]
    return any(module.partition(".")[0] != "zoo" for module in modules)


def is_baseline(names: Iterable[str]) -> bool:
    """Whether every variant is a baseline, which is no attention."""
    return all(variants.find(name).is_baseline for name in names)
