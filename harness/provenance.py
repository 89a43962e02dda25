"""What a record states about the code of a run: versions, source digests, declared failures."""

import hashlib
import inspect
import sys
from contextlib import suppress

from harness.environment import describe
from harness.plan import Plan
from harness.records.record import Environment
from tasks.registry import tasks
from zoo.composition import Composition
from zoo.variants import variants


def environment_of(plan: Plan) -> Environment:
    """The environment of a run, with the versions of the plug-ins that it uses."""
    environment, versions = describe(plan.spec.device), dict(tasks.package(plan.spec.task.name))
    for name in plan.composition.names:
        versions |= variants.package(name)
    return environment.model_copy(update={"versions": environment.versions | versions})


def implementations(composition: Composition) -> dict[str, str]:
    """SHA-256 of the source of each variant's module, by variant; none where it has no source."""
    digests = {}
    for name in composition.names:
        with suppress(OSError, TypeError, KeyError):
            source = inspect.getsource(sys.modules[variants.find(name).__module__])
            digests[name] = hashlib.sha256(source.encode()).hexdigest()
    return digests


def expected_failures_of(plan: Plan) -> dict[str, str]:
    """The check failures that the variants of a run declare, by variant and check."""
    return {
        f"{name}: {check}": reason
        for name in plan.composition.names
        for check, reason in variants.find(name)
        .expected_failures_of(causal=plan.task.causal)
        .items()
    }


def is_baseline(composition: Composition) -> bool:
    """Whether every variant of a run is a baseline, which is no attention."""
    return all(variants.find(name).is_baseline for name in composition.names)
