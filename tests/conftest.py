"""Fixtures of every test: checked shapes, uninitialised memory filled with NaN, a fixed seed."""

import gc
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import jaxtyping
import pytest
import torch
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent.parent

# As commands set it: the backend of a notebook need not be installed here.
os.environ["MPLBACKEND"] = "agg"

# pytest then shows the values in their failed assertions.
pytest.register_assert_rewrite("tests.zoo.oracle", "tests.zoo.primal_oracle")

# numba cannot compile a function that the hook has wrapped. Options have any type until they are
# validated, which tests check. The registry's warnings give the line of the caller, which would be
# in the wrapper. A compiler does not trace a generator through the wrapper.
UNCHECKED = {
    "tasks.lra.listops_trees", "tasks.lra.pathfinder_drawing",
    "zoo.kernels.precision", "zoo.kernels.recurrence_loops",
    "zoo.registry.names", "zoo.registry.options",
}  # fmt: skip


def _modules() -> list[str]:
    paths = (path for name in ("zoo", "tasks", "harness") for path in (ROOT / name).rglob("*.py"))
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    return sorted(name for name in names - UNCHECKED if not name.endswith("__init__"))


# Before the packages are imported: the hook does not check modules that are imported already.
install_import_hook(_modules(), "beartype.beartype")


@contextmanager
def one_line(*named: object) -> Iterator[None]:
    """Assert that a `UserError` of one line names all of `named`."""
    from zoo.registry import UserError

    with pytest.raises(UserError) as raised:
        yield
    text = str(raised.value)
    assert "\n" not in text and not [name for name in named if str(name) not in text], text


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as `slow` every case of a test after the first N of its mark `slow_after(N)`."""
    counts = Counter()
    for item in items:
        if mark := item.get_closest_marker("slow_after"):
            name = item.nodeid.partition("[")[0]
            counts[name] += 1
            if counts[name] > mark.args[0]:
                item.add_marker("slow")


def pytest_collection_finish():
    """Exempt modules and collected tests from garbage collection: each would take half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Fill uninitialised memory with NaN, so that a test fails if a result depends on it."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.manual_seed(0)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def no_type_checks(monkeypatch):
    """Without the type checks of the tests: users have none, and they cannot be compiled."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def unrendered(monkeypatch):
    """Figures are drawn and not rendered, which takes most of the time of a page."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory) -> Path:
    """A cache of generated data for all processes of pytest-xdist: numba compiles for seconds."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "data"


def _optional(name: str, extra: str) -> ModuleType:
    """A package, which imports torchvision where there is any, of whatever build."""
    from tasks.data.images import require_timm

    if find_spec(name) is None:
        pytest.skip(f"needs the extra {extra!r}: {name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if find_spec("torchvision"):
            require_timm()
        return import_module(name)


@pytest.fixture(scope="session")
def transformers() -> ModuleType:
    module = _optional("transformers", "transformers")
    import_module("transformers.modeling_utils")
    return module


@pytest.fixture(scope="session")
def timm() -> ModuleType:
    return _optional("timm", "vision")
