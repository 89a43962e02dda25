"""What a record states about the code of a run: versions, source digests, declared failures."""

import dis
import hashlib
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, resolve_name
from types import CodeType

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
    """SHA-256 of the source of each variant, by variant; none where it has no source."""
    digests = {name: source_digest(variants.find(name)) for name in names}
    return {name: digest for name, digest in digests.items() if digest}


def source_digest(variant: type) -> str:
    """SHA-256 of `sources` of the module of a variant; empty where it has none."""
    module = variant.__module__
    return _digest(sources(module, {"zoo", _package(module)}))


def certified_digest(variant: type) -> str:
    """SHA-256 of `sources` of the module of a variant, and of the checks; empty without source."""
    module, checks = variant.__module__, "zoo.conformance"
    found = sources(module, {"zoo", _package(module)})
    return _digest(found | sources(checks, {checks})) if found else ""


def sources(module: str, packages: Collection[str]) -> dict[str, str]:
    """The source of a module, and of the modules of `packages` that it imports, by name.

    Imports are those in the code, also in functions, and those of the modules imported. A module
    that a program names in another way, such as by `import_module`, is not found.
    """
    found: dict[str, str] = {}
    left = [module]
    while left:
        name = left.pop()
        spec = None if name in found else _spec(name)
        if spec and isinstance(spec.loader, InspectLoader):
            found[name] = spec.loader.get_source(name) or ""
            left += _imports(name, frozenset(packages))
    return found


def _digest(found: Mapping[str, str]) -> str:
    text = "".join(source for _, source in sorted(found.items()))
    return hashlib.sha256(text.encode()).hexdigest() if found else ""


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_within(module: str, packages: Collection[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


@cache
def _imports(module: str, packages: frozenset[str]) -> frozenset[str]:
    """The modules of `packages` that a module imports."""
    spec = _spec(module)
    code = spec.loader.get_code(module) if spec and isinstance(spec.loader, InspectLoader) else None
    return frozenset(_imported(code, spec.parent, packages)) if spec and code else frozenset()


def _imported(code: CodeType, parent: str | None, packages: Collection[str]) -> Iterator[str]:
    """The modules of `packages` that the code of a module of the package `parent` imports.

    They are read from its instructions: `ast.parse` is not safe in two threads at once.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname == "IMPORT_NAME":
            start = resolve_name("." * level.argval + step.argval, parent)
            if _is_within(start, packages):
                taken = names.argval or ()
                modules = [name for one in taken if _spec(name := f"{start}.{one}")]
                yield from modules
                if len(modules) < len(taken) or not taken:
                    yield start
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imported(constant, parent, packages)


@cache
def _spec(module: str) -> ModuleSpec | None:
    """The specification of a module, imported or not; None where there is no such module."""
    try:
        return sys.modules[module].__spec__ if module in sys.modules else find_spec(module)
    except ModuleNotFoundError:  # a name in a module
        return None


def options_of(spec: RunSpec | CostSpec) -> dict[str, dict[str, Value]]:
    """Every option of every variant of a run or a measurement, by variant."""
    options = spec.options.items()
    return {name: resolve(name, variants.find(name), changed) for name, changed in options}


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
