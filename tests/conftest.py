"""What every test runs under: checked shapes, poisoned fresh memory, and a fixed seed."""

from pathlib import Path

import pytest
import torch
from jaxtyping import install_import_hook

ROOT = Path(__file__).parent.parent

# Their comparisons then show what they compared.
pytest.register_assert_rewrite("tests.zoo.oracle", "tests.zoo.primal_oracle")

# Compiled kernels are no Python functions: the hook would wrap what numba must see bare. Options
# are values of any type until they are judged, which is to be tested. The registry's warnings name
# the line that asked: the hook's own would stand between. A compiler does not trace a generator
# through the hook's wrapper.
UNCHECKED = {
    "tasks.lra.listops_trees", "tasks.lra.pathfinder_drawing", "tasks.lra.pathfinder_growth",
    "zoo.kernels.precision", "zoo.registry.names", "zoo.registry.options",
}  # fmt: skip


def _modules() -> list[str]:
    paths = (path for name in ("zoo", "tasks", "harness") for path in (ROOT / name).rglob("*.py"))
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    return sorted(name for name in names - UNCHECKED if not name.endswith("__init__"))


# Before anything of ours is imported: what was imported earlier would go unchecked.
install_import_hook(_modules(), "beartype.beartype")


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Fresh memory holds NaN, so that reading it before writing it cannot pass unseen."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.manual_seed(0)
    yield
    torch.use_deterministic_algorithms(False)
