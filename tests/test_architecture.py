"""The rules of the house that a reader of one file cannot see broken."""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("zoo", "tasks", "harness", "reports")

MAY_IMPORT = {
    "zoo": ("zoo",),
    "tasks": ("tasks", "zoo.registry"),
    "harness": ("harness", "zoo", "tasks"),
    "reports": ("reports", "harness.records.store"),
    # The command line is above all four: `harness report` is where records become pages.
    "harness.cli": ("harness", "zoo", "tasks", "reports"),
}
"""What of ours each package may import: the module named, and everything below it."""

EXECUTES_ON_READING = ("pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")

Rule = Callable[[str, ast.Module], Iterator[str]]
"""Takes a module's dotted name and its syntax tree; yields what it breaks."""


def imported(module: str, tree: ast.Module) -> Iterator[str]:
    """The dotted name of everything that is imported, wherever in the module it stands."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                above = module.split(".")[: -level or None] if level else []
                origin = ".".join([*above, *([source] if source else [])])
                yield from (f"{origin}.{alias.name}".lstrip(".") for alias in names)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]):
                if ast.unparse(func).split(".")[-1] in ("import_module", "__import__"):
                    yield name


def calls(tree: ast.Module) -> Iterator[tuple[str, dict[str, str]]]:
    """Every call: what is called, and its keyword arguments as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = {one.arg: ast.unparse(one.value) for one in node.keywords if one.arg}
            yield ast.unparse(node.func), given


def imports_against_the_direction(module: str, tree: ast.Module) -> Iterator[str]:
    # "harness.cli.pages" is one of the files of "harness.cli".
    allowed = MAY_IMPORT.get(module.partition("_")[0], MAY_IMPORT[module.split(".")[0]])
    for name in imported(module, tree):
        ours = name.split(".")[0] in PACKAGES
        if ours and not any(f"{name}.".startswith(f"{prefix}.") for prefix in allowed):
            yield f"imports {name}"


def prints(module: str, tree: ast.Module) -> Iterator[str]:
    if module != "harness.cli":
        yield from ("prints" for name, _ in calls(tree) if name == "print")


def reads_what_can_execute(module: str, tree: ast.Module) -> Iterator[str]:
    for name in imported(module, tree):
        # Catching its error is not reading with it.
        if name.split(".")[0] in EXECUTES_ON_READING and name != "pickle.UnpicklingError":
            yield f"imports {name}"
    for name, given in calls(tree):
        if name == "torch.load" and given.get("weights_only") != "True":
            yield "calls torch.load without weights_only=True"
        if given.get("allow_pickle", "False") != "False":
            yield f"calls {name} with allow_pickle"


def imports_names_that_hide_a_call(module: str, tree: ast.Module) -> Iterator[str]:
    # The rule above knows torch.load by that name only.
    yield from (
        f"imports {name} by name" for name in imported(module, tree) if name == "torch.load"
    )


def postpones_annotations(module: str, tree: ast.Module) -> Iterator[str]:
    # Shapes that are never evaluated are never checked.
    if "__future__.annotations" in imported(module, tree):
        yield "postpones annotations"


def swallows_options(module: str, tree: ast.Module) -> Iterator[str]:
    if not module.startswith("zoo.variants"):
        return
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef):
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    rest = (method.args.vararg, method.args.kwarg)
                    yield from (f"{owner.name} takes *{one.arg}" for one in rest if one)


def asserts(module: str, tree: ast.Module) -> Iterator[str]:
    if not module.startswith("zoo.conformance"):
        yield from ("asserts" for node in ast.walk(tree) if isinstance(node, ast.Assert))


def shipped() -> dict[str, ast.Module]:
    """Every module of the four packages, by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            # Relative imports of a package start at itself: keep the difference in the name.
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found[f"{name}.__init__" if path.name == "__init__.py" else name] = tree
    return found


RULES: list[Rule] = [
    imports_against_the_direction,
    prints,
    reads_what_can_execute,
    imports_names_that_hide_a_call,
    postpones_annotations,
    swallows_options,
    asserts,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_shipped_module_breaks_a_rule_of_the_house(rule):
    modules = shipped()
    assert {"zoo.contract", "tasks.contract", "harness.records.store"} <= set(modules)
    broken = [f"{name} {how}" for name, tree in modules.items() for how in rule(name, tree)]
    assert not broken


OFFENCES = [
    (imports_against_the_direction, "zoo.a", "import tasks"),
    (
        imports_against_the_direction,
        "zoo.a",
        "def f():\n    from harness.records.spec import RunSpec",
    ),
    (imports_against_the_direction, "zoo.variants.a", "from ... import reports"),
    (
        imports_against_the_direction,
        "zoo.a",
        "import importlib; importlib.import_module('tasks.b')",
    ),
    (imports_against_the_direction, "tasks.a", "from zoo.contract import Size"),
    (imports_against_the_direction, "tasks.a", "from zoo import contract"),
    (imports_against_the_direction, "tasks.a", "import zoo"),
    (imports_against_the_direction, "harness.a", "import reports.rows"),
    (imports_against_the_direction, "reports.a", "from harness.train import fit"),
    (imports_against_the_direction, "reports.a", "from harness import storekeeper"),
    (imports_against_the_direction, "reports.a", "from harness.records.files import place"),
    (imports_against_the_direction, "tasks.a", "from zoo.composition import Composition"),
    (imports_against_the_direction, "reports.a", "from zoo.registry import UserError"),
    (prints, "harness.run", "def f():\n    print(1)"),
    (reads_what_can_execute, "harness.a", "torch.load(path)"),
    (reads_what_can_execute, "harness.a", "torch.load(path, weights_only=False)"),
    (reads_what_can_execute, "tasks.a", "numpy.load(path, allow_pickle=True)"),
    (reads_what_can_execute, "tasks.a", "np.load(path, allow_pickle=flag)"),
    (reads_what_can_execute, "tasks.a", "import pickle"),
    (reads_what_can_execute, "tasks.a", "from pickle import loads"),
    (reads_what_can_execute, "tasks.a", "import joblib.memory"),
    (imports_names_that_hide_a_call, "harness.a", "from torch import load"),
    (postpones_annotations, "zoo.a", "from __future__ import annotations"),
    (swallows_options, "zoo.variants.a", "class A:\n    def __init__(self, size, *rest): ..."),
    (swallows_options, "zoo.variants.a", "class A:\n    def __init__(self, size, **rest): ..."),
    (asserts, "zoo.a", "def f(x):\n    assert x"),
]


@pytest.mark.parametrize(("rule", "module", "source"), OFFENCES)
def test_an_offence_is_seen(rule, module, source):
    assert list(rule(module, ast.parse(source)))


INNOCENT = [
    (imports_against_the_direction, "zoo.variants.__init__", "from .softmax import Softmax"),
    (imports_against_the_direction, "zoo.variants.a", "from ..contract import Size; import torch"),
    (imports_against_the_direction, "tasks.a", "from zoo.registry import UserError"),
    (imports_against_the_direction, "tasks.a", "from zoo.registry.messages import in_one_line"),
    (imports_against_the_direction, "harness.a", "import zoo.contract, tasks.registry"),
    (imports_against_the_direction, "reports.a", "from harness.records.store import Record"),
    (imports_against_the_direction, "reports.a", "from harness import store"),
    (imports_against_the_direction, "zoo.a", "import tasksets"),
    (imports_against_the_direction, "harness.cli", "from reports.leaderboard import files"),
    (imports_against_the_direction, "harness.cli.pages", "import reports.leaderboard"),
    (prints, "harness.cli", "print(1)"),
    (prints, "harness.a", "console.print(1)"),
    (reads_what_can_execute, "harness.a", "torch.load(path, weights_only=True)"),
    (reads_what_can_execute, "tasks.a", "np.load(path)"),
    (reads_what_can_execute, "harness.a", "from pickle import UnpicklingError"),
    (swallows_options, "zoo.variants.a", "class A:\n    def __init__(self, size, *, rank=1): ..."),
    (asserts, "zoo.conformance.padding", "assert True"),
]


@pytest.mark.parametrize(("rule", "module", "source"), INNOCENT)
def test_an_innocent_line_is_left_alone(rule, module, source):
    assert not list(rule(module, ast.parse(source)))


TORCHLESS = """
import importlib, pkgutil, sys
names = sys.argv[1:]
for name in names:
    module = importlib.import_module(name)
    found = pkgutil.walk_packages(getattr(module, "__path__", []), name + ".")
    names += [one.name for one in found]
    if "torch" in sys.modules:
        sys.exit(f"{name} imports torch")
"""


def torchless(*names: str) -> str:
    """Import the modules, and all below them, in a fresh process; what it complains of."""
    command = [sys.executable, "-c", TORCHLESS, *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stderr.strip()


def test_records_and_reports_can_be_read_without_torch():
    assert (
        torchless("zoo.registry", "harness.records.spec", "harness.records.store", "reports") == ""
    )


def test_a_module_that_imports_torch_is_seen():
    assert torchless("harness.records.store", "zoo.contract") == "zoo.contract imports torch"
