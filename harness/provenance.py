"""The code of a run, for its record: versions, declared failures."""

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
    environment, versions = describe(spec.device), dict(tasks.package(spec.task.name))
    for name in spec.variants:
        versions |= variants.package(name)
    versions |= {name: metadata.version(name) for name in task.packages}
    return environment.model_copy(update={"versions": environment.versions | versions})


def versions_of(names: Iterable[str]) -> dict[str, str]:
    return {name: version_of(variants.find(name)) for name in names}


def majors_of(names: Iterable[str]) -> dict[str, str]:
    return {name: major(version) for name, version in versions_of(names).items()}


def version_of(variant: type) -> str:
    # Without a version, the file as it is now.
    if version := vars(variant).get("version"):
        return version
    digest = file_digest(file_of(variant))
    return f"sha256:{digest}" if digest else ""


def file_of(variant: type) -> str:
    return getattr(sys.modules.get(variant.__module__), "__file__", None) or ""


def is_outdated(record: Record | CostRecord) -> bool:
    return not is_current(record.version, versions_of(record.versions) | {LOOP: TRAINING})


def covered(names: Iterable[str]) -> list[str]:
    note = (
        '{}: runs are of the SHA-256 of {} alone; give the class version = "1.0" if it depends on '
        "other files, and raise it when what it computes changes"
    )
    kinds = {name: variants.find(name) for name in names}
    return [note.format(name, file_of(kind)) for name, kind in kinds.items()
            if not vars(kind).get("version")]  # fmt: skip


def files_of(spec: TaskSpec) -> dict[str, str]:
    path = str(spec.options.get("path", ""))
    digest = file_digest(path) if path else ""
    return {path: digest} if digest else {}


def options_of(spec: RunSpec | CostSpec) -> dict[str, dict[str, Value]]:
    options = spec.options.items()
    return {name: resolve(name, variants.find(name), changed) for name, changed in options}


def expected_failures_of(spec: RunSpec, task: Task) -> dict[str, str]:
    causal, kinds = task.causal, {name: variants.find(name) for name in spec.variants}
    declared = {name: kind.expected_failures_of(causal=causal) for name, kind in kinds.items()}
    return {f"{name}: {check}": why for name, of in declared.items() for check, why in of.items()}


def is_foreign(names: Iterable[str]) -> bool:
    modules = [variants.find(name).__module__ for name in names]
    return any(module.partition(".")[0] != "zoo" for module in modules)


def is_baseline(names: Iterable[str]) -> bool:
    return all(variants.find(name).is_baseline for name in names)
