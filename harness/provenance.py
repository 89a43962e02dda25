"""The code of a run, as its record has it: versions, declared failures."""

import sys
from collections.abc import Iterable
from importlib import metadata

from harness.environment import describe
from harness.records.cost import CostRecord, CostSpec
from harness.records.record import Environment, Record
from harness.records.spec import RunSpec, TaskSpec
from harness.records.versions import LOOP, TRAINING, file_digest, is_current, major
from tasks import Task
from tasks.registry import tasks
from zoo.registry import Value, resolve
from zoo.variants import variants


def environment_of(spec: RunSpec, task: Task) -> Environment:
    """The environment of a run, with the versions of the plug-ins and packages that it uses."""
    environment, versions = describe(spec.device), dict(tasks.package(spec.task.name))
    for name in spec.variants:
        versions |= variants.package(name)
    versions |= {name: metadata.version(name) for name in task.packages}
    return environment.model_copy(update={"versions": environment.versions | versions})


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """The version of each variant, by variant; see `version_of`."""
    return {name: version_of(variants.find(name)) for name in names}


def majors_of(names: Iterable[str]) -> dict[str, str]:
    """The first part of the version of each variant, by variant: what it computes."""
    return {name: major(version) for name, version in versions_of(names).items()}


def version_of(variant: type) -> str:
    """The version in the class body of a variant, or `sha256:` and the digest of its file.

    The file is read each time, as a run imports it as it is then. Empty without either.
    """
    if version := vars(variant).get("version"):
        return version
    digest = file_digest(file_of(variant))
    return f"sha256:{digest}" if digest else ""


def file_of(variant: type) -> str:
    """The file of the module of a variant; empty where there is none."""
    return getattr(sys.modules.get(variant.__module__), "__file__", None) or ""


def is_outdated(record: Record | CostRecord) -> bool:
    """Return whether a record is of other code than this process would run, or of unknown code."""
    return not is_current(record.version, versions_of(record.versions) | {LOOP: TRAINING})


def covered(names: Iterable[str]) -> list[str]:
    """A line for each variant without a version: what identifies its code in a record."""
    note = (
        '{}: runs are of the SHA-256 of {} alone; give the class version = "1.0" if it depends on '
        "other files, and raise it when what it computes changes"
    )
    kinds = {name: variants.find(name) for name in names}
    return [note.format(name, file_of(kind)) for name, kind in kinds.items()
            if not vars(kind).get("version")]  # fmt: skip


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
