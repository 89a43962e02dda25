"""Rules for all modules: directions of imports, no import cycle, no unsafe reading of files."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import chain

import pytest

from tests.conftest import ROOT

PACKAGES = ("zoo", "tasks", "harness", "reports")

MAY_IMPORT = {
    "zoo": ("zoo",),
    "tasks": ("tasks", "zoo.registry"),
    "harness": ("harness", "zoo", "tasks"),
    "harness.records": ("harness.records", "tasks.metrics", "zoo.registry"),
    "harness.cli": ("harness", "zoo", "tasks", "reports"),
    # The face of the package has functions of `reports.api`.
    "harness.__init__": ("harness", "reports.api"),
    "reports": ("reports", "harness.records", "harness.recipes"),
    "reports.layer_costs": ("reports", "harness.records", "harness.recipes", "harness.catalogue"),
    **dict.fromkeys(("reports.api", "reports.store"), ("reports", "harness", "zoo.registry")),
}
"""What of the four packages each may import: the module named, and every module below it.

See docs/decisions/records.md.
"""

COMMANDS = ("harness.cli",)
"""The programs, which no module but theirs may import."""

EXECUTES_ON_READING = ("pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")

LOADED_WITH_AN_EXTRA = ("harness.studies", "zoo.transformers")
"""Modules that import what an extra installs; no default command imports them."""

BROUGHT = ("cycler", "markupsafe", "pydantic_core")
"""Modules that matplotlib and jinja2 bring."""

Rule = Callable[[str, ast.Module], Iterator[str]]
"""Takes a module's dotted name and its syntax tree; yields what it breaks."""


def imported(module: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                above = module.split(".")[: -level or None] if level else []
                origin = ".".join([*above, *([source] if source else [])])
                yield from (f"{origin}.{alias.name}".lstrip(".") for alias in names)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
                if last_name(func) in ("import_module", "__import__"):
                    yield name


def prefixes(name: str) -> list[str]:
    names = name.split(".")
    return [".".join(names[:end]) for end in range(len(names), 0, -1)]


def last_name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def imports_against_the_direction(module: str, tree: ast.Module) -> Iterator[str]:
    allowed = next(MAY_IMPORT[prefix] for prefix in prefixes(module) if prefix in MAY_IMPORT)
    for name in imported(module, tree):
        ours = name.split(".")[0] in PACKAGES
        of_commands = {*prefixes(name)} & {*COMMANDS} and not {*prefixes(module)} & {*COMMANDS}
        if of_commands or (ours and not {*prefixes(name)} & {*allowed}):
            yield f"imports {name}"


def reads_what_can_execute(module: str, tree: ast.Module) -> Iterator[str]:
    for name in imported(module, tree):
        # The name of an exception, used to catch it.
        if name.split(".")[0] in EXECUTES_ON_READING and name != "pickle.UnpicklingError":
            yield f"imports {name}"
        if name == "torch.load":  # only called by that name is it recognised below
            yield f"imports {name} by name"
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func) if last_name(call.func) == "load" else last_name(call.func)
        keywords = {each.arg: ast.unparse(each.value) for each in call.keywords}
        if name == "torch.load" and keywords.get("weights_only") != "True":
            yield "calls torch.load without weights_only=True"
        if keywords.get("allow_pickle", "False") != "False":
            yield f"calls {name} with allow_pickle"


@cache
def required() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.split("[>=]", text)[0] for text in project["dependencies"]}
    found = [
        (m, [n.lower().replace("_", "-") for n in of]) for m, of in packages_distributions().items()
    ]
    return {name: [module for module, of in found if name in of] for name in names}


def needs_an_extra(module: str, tree: ast.Module) -> Iterator[str]:
    if {*prefixes(module)} & {*LOADED_WITH_AN_EXTRA}:
        return
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    known = {*PACKAGES, *BROUGHT, *sys.stdlib_module_names, *chain(*required().values())}
    found = {name.split(".")[0] for name in imported(module, ast.Module(top, []))}
    yield from (f"imports {name}" for name in found - known)


@cache
def shipped() -> dict[str, ast.Module]:
    modules = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            modules[name] = ast.parse(path.read_text(encoding="utf-8"))
    return modules


def import_cycle(modules: Mapping[str, ast.Module]) -> list[str]:
    """The modules of one import cycle, imports inside functions included; empty if there is none.

    An import under `if TYPE_CHECKING` is no import at run time.
    """
    graph: dict[str, set[str]] = {}
    for module, tree in modules.items():
        body = [node for node in tree.body if not (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")]  # fmt: skip
        graph[module] = set()
        for name in imported(module, ast.Module(body, [])):
            found = (path for end in prefixes(name) for path in (end, f"{end}.__init__"))
            target = next((path for path in found if path in modules), module)
            graph[module] |= {target} - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_files_of_the_command_line_have_at_most_150_lines_and_20_packages_are_required():
    files = (ROOT / "harness" / "cli").glob("*.py")
    assert all(len(file.read_text("utf-8").splitlines()) <= 150 for file in files)
    assert len(required()) <= 20


def test_there_is_no_import_cycle_and_one_is_found():
    assert not import_cycle(shipped())
    cycle = {"zoo.a": "import zoo.b", "zoo.b": "def f():\n    from zoo import a"}
    assert import_cycle({name: ast.parse(source) for name, source in cycle.items()})


RULES: dict[Rule, list[tuple[str, str]]] = {
    imports_against_the_direction: [
        ("zoo.variants.a", "from ... import reports"), ("harness.a", "import reports.rows"),
        ("tasks.a", "import importlib; importlib.import_module('harness.b')"),
        ("harness.api", "def f():\n    from harness import cli"),
    ],
    reads_what_can_execute: [
        ("harness.a", "torch.load(path)"), ("harness.a", "from torch import load"),
        ("tasks.a", "np.load(path, allow_pickle=flag)"), ("tasks.a", "from pickle import loads"),
    ],
    needs_an_extra: [("tasks.a", "from PIL import Image")],
}  # fmt: skip
"""Rules, each with modules and sources that break it."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_shipped_module_breaks_a_rule_and_one_that_does_is_found(rule):
    modules = shipped()
    assert {"zoo.contract", "tasks.contract", "harness.records.store"} <= set(modules)
    assert not [f"{name} {how}" for name, tree in modules.items() for how in rule(name, tree)]
    assert all([*rule(module, ast.parse(source))] for module, source in RULES[rule])


FIND_IMPORT = """
import importlib, pkgutil, sys
unwanted, *names = sys.argv[1:]
for name in names:
    module = importlib.import_module(name)
    below = pkgutil.walk_packages(getattr(module, "__path__", []), name + ".")
    names += [one.name for one in below]
    if unwanted in sys.modules:
        sys.exit(f"{name} imports {unwanted}")
"""


def test_records_and_reports_import_no_torch_and_the_contract_no_variant():
    for unwanted, *names in (
        ("torch", "zoo.registry", "harness.records", "reports"),
        ("zoo.variants.softmax", "zoo.contract"),
    ):
        command = [sys.executable, "-c", FIND_IMPORT, unwanted, *names]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
