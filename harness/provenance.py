"""What a record states about the code of a run: versions, source digests, declared failures."""

import dis
import hashlib
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.abc import InspectLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import resolve_name
from types import CodeType

from harness.environment import describe
from harness.plan import Plan
from harness.records.cost import CostSpec
from harness.records.record import Environment
from harness.records.spec import RunSpec
from tasks.registry import tasks
from zoo.registry import Value, resolve
from zoo.variants import variants

CHECKS = {"zoo.conformance", "zoo.cost"}
"""The packages of the checks. Other modules that these import are sources of variants, too."""


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
    """SHA-256 of `sources` of the module of a variant; empty where it has none.

    A class of `__main__`, such as of a notebook, has none.
    """
    module = variant.__module__
    return _digest(sources(module, {"zoo", _package(module)}))


def certified_digest(variant: type) -> str:
    """SHA-256 of `sources` of the module of a variant, and of the checks; empty without source."""
    module = variant.__module__
    found = sources(module, {"zoo", _package(module)})
    return _digest(found | sources("zoo.conformance", CHECKS)) if found else ""


def sources(module: str, packages: Collection[str]) -> dict[str, str]:
    """The source of a module, and of the modules of `packages` that it imports, by name.

    Imports in functions count, and so do imports of the modules imported. A module that a program
    names in another way, such as by `import_module`, is not found; nor is what `zoo/__init__.py`
    imports on first use. Nothing is imported.
    """
    found: dict[str, str] = {}
    left = [module]
    while left:
        name = left.pop()
        spec = None if name in found or name == "zoo" else _spec(name)
        source = _source(spec) if spec else None
        if spec and source is not None:
            found[name] = source
            for start, names in _imports(source, spec.parent or ""):
                if _is_within(start, packages):
                    modules = [path for n in names if _is_module(path := f"{start}.{n}")]
                    left += modules if modules and len(modules) == len(names) else [start, *modules]
    return found


def _digest(found: Mapping[str, str]) -> str:
    text = "".join(source for _, source in sorted(found.items()))
    return hashlib.sha256(text.encode()).hexdigest() if found else ""


def _package(module: str) -> str:
    return module.partition(".")[0]


def _is_within(module: str, packages: Collection[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _spec(module: str) -> ModuleSpec | None:
    """The specification of a module, without an import of it or of its parents; None without it."""
    if module in sys.modules:
        return getattr(sys.modules[module], "__spec__", None)
    parent = module.rpartition(".")[0]
    above = _spec(parent) if parent else None
    if parent and not (above and above.submodule_search_locations):
        return None
    try:
        return PathFinder.find_spec(module, above.submodule_search_locations if above else None)
    except KeyError:  # a folder without `__init__`, of a package that is not imported
        return None


def _is_module(name: str) -> bool:
    spec = _spec(name)
    return bool(spec and spec.origin)


def _source(spec: ModuleSpec) -> str | None:
    """The source of a module; None where there is none, as of a package without `__init__`."""
    if not (spec.origin and isinstance(spec.loader, InspectLoader)):
        return None
    try:
        return spec.loader.get_source(spec.name)
    except (ImportError, OSError, SyntaxError):
        return None


@cache
def _imports(source: str, parent: str) -> frozenset[tuple[str, tuple[str, ...]]]:
    """What a module of the package `parent` imports: modules, each with the names taken from it.

    They are read from its instructions, as `ast.parse` is not safe in two threads at once. A module
    that does not compile, and an import from above its package, have none.
    """
    found: set[tuple[str, tuple[str, ...]]] = set()
    try:
        left = [compile(source, "", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        left = []
    while left:
        code = left.pop()
        left += (constant for constant in code.co_consts if isinstance(constant, CodeType))
        steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
            if step.opname == "IMPORT_NAME":
                with suppress(ImportError):
                    start = resolve_name("." * level.argval + step.argval, parent)
                    found.add((start, tuple(names.argval or ())))
    return frozenset(found)


def options_of(spec: RunSpec | CostSpec) -> dict[str, dict[str, Value]]:
    """Every option of every variant of a run or a measurement, by variant."""
    options = spec.options.items()
    return {name: resolve(name, variants.find(name), changed) for name, changed in options}


def expected_failures_of(plan: Plan) -> dict[str, str]:
    """The check failures that the variants of a run declare, by variant and check."""
    causal, kinds = plan.task.causal, {name: variants.find(name) for name in plan.spec.variants}
    declared = {name: kind.expected_failures_of(causal=causal) for name, kind in kinds.items()}
    return {f"{name}: {check}": why for name, of in declared.items() for check, why in of.items()}


def is_foreign(names: Iterable[str]) -> bool:
    """Whether a variant is of another package than `zoo`."""
    modules = [variants.find(name).__module__ for name in names]
    return any(module.partition(".")[0] != "zoo" for module in modules)


def is_baseline(names: Iterable[str]) -> bool:
    """Whether every variant is a baseline, which is no attention."""
    return all(variants.find(name).is_baseline for name in names)
