"""The code of a run, as its record has it: versions, source digests, declared failures."""

from collections.abc import Iterable
from functools import cache
from importlib import metadata

from harness.environment import describe
from harness.records.cost import CostRecord, CostSpec
from harness.records.record import Environment, Record
from harness.records.sources import UNKNOWN, Sources, digest_of, file_digest, implementation_of
from harness.records.spec import RunSpec, TaskSpec
from tasks import Task
from tasks.registry import tasks
from zoo.registry import Value, resolve
from zoo.variants import variants

CHECKS = {"zoo.conformance", "zoo.cost"}
"""The packages of the checks. Other modules that these import are sources of variants, too."""


def environment_of(spec: RunSpec, task: Task) -> Environment:
    """The environment of a run, with the versions of the plug-ins and packages that it uses."""
    environment, versions = describe(spec.device), dict(tasks.package(spec.task.name))
    for name in spec.variants:
        versions |= variants.package(name)
    versions |= {name: metadata.version(name) for name in task.packages}
    return environment.model_copy(update={"versions": environment.versions | versions})


def implementations(names: Iterable[str]) -> dict[str, str]:
    """The digest of the code of each variant, by variant; none where it has no source."""
    digests = {name: source_digest(variants.find(name)) for name in names}
    return {name: digest for name, digest in digests.items() if digest}


def source_digest(variant: type) -> str:
    """`MODULE:SHA-256` of the code of a variant, see `Sources.digest`; empty without source.

    That of another package is read each time: a run imports the file as it is then.
    """
    module = variant.__module__
    return _of_zoo(module) if module.startswith("zoo.") else Sources().digest(module)


@cache
def _of_zoo(module: str) -> str:
    return Sources().digest(module)


def certified_digest(variant: type) -> str:
    """SHA-256 of the code of a variant and of the checks; empty without source."""
    module, files = variant.__module__, Sources()
    found = files.closure(module, {"zoo", module.partition(".")[0]})
    return digest_of(found | files.closure("zoo.conformance", CHECKS)) if found else ""


def is_outdated(record: Record | CostRecord) -> bool:
    """Return whether a record is of other code than this process would run, or of unknown code."""
    now = implementation_of(implementations(record.implementations), record.spec.options)
    return record.implementation == UNKNOWN or record.implementation != now


def files_of(spec: TaskSpec) -> dict[str, str]:
    """SHA-256 of the file or folder that a task reads by its option `path`, by it; else none."""
    path = str(spec.options.get("path", ""))
    digest = file_digest(path) if path else ""
    return {path: digest} if digest else {}


def options_of(spec: RunSpec | CostSpec) -> dict[str, dict[str, Value]]:
    """Every option of every variant of a run or a measurement, by variant."""
    options = spec.options.items()
    return {name: resolve(name, variants.find(name), changed) for name, changed in options}


def expected_failures_of(spec: RunSpec, task: Task) -> dict[str, str]:
    """The check failures that the variants of a run declare, by variant and check."""
    causal, kinds = task.causal, {name: variants.find(name) for name in spec.variants}
    declared = {name: kind.expected_failures_of(causal=causal) for name, kind in kinds.items()}
    return {f"{name}: {check}": why for name, of in declared.items() for check, why in of.items()}


def is_foreign(names: Iterable[str]) -> bool:
    """Return whether a variant is of another package than `zoo`."""
    modules = [variants.find(name).__module__ for name in names]
    return any(module.partition(".")[0] != "zoo" for module in modules)


def is_baseline(names: Iterable[str]) -> bool:
    """Return whether every variant is a baseline, which is no attention."""
    return all(variants.find(name).is_baseline for name in names)
