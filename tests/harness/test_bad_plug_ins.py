"""Faulty plug-ins: each is reported in one line, and none ends a command or a grid."""

import pytest

from tasks import Split, Task
from zoo.contract import Traits
from zoo.projected import ProjectedAttention


class Good(ProjectedAttention):
    """Returns the queries."""

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)

    def attend(self, q, k, v, mask):
        return q


class Swallows(Good):
    """Accepts any option."""

    def __init__(self, size, **options):
        super().__init__(size)


class Unbuilt(Task):
    """A task that cannot be built."""

    name, version = "unbuilt", 1

    def __init__(self):
        raise ValueError("boom")

    def load(self, split) -> Split:
        raise NotImplementedError


class Undefined(Unbuilt):
    """A task that does not define its classes."""

    name = "undefined"

    def __init__(self):
        self.vocabulary, self.max_len = 2, 8


# The warnings about the broken ones are tested here.
pytestmark = pytest.mark.filterwarnings("always")

BAD = {
    "absent": "no_such_package_at_all:Attention", "raises": "this.module.does_not_parse:Attention",
    "swallows": f"{__name__}:Swallows", "stranger": "pathlib:Path",
}  # fmt: skip


def test_the_listing_has_one_line_for_each_that_cannot_be_loaded(call, install, no_type_checks):
    tasks = {name.lower(): f"{__name__}:{name}" for name in ("Unbuilt", "Undefined")}
    install({"zoo.variants": {**BAD, "good": f"{__name__}:Good"}, "tasks.tasks": tasks})
    code, out, err = call("list")
    rows = {line.split()[0].partition("@")[0] for line in out.splitlines() if line.strip()}
    assert code == 0
    assert rows >= {"softmax", "primal", "good"} and not rows & {*BAD, "unbuilt", "undefined"}
    lines = [line for line in err.splitlines() if line.startswith("harness: warning: ")]
    for name in BAD:
        (line,) = [line for line in lines if f"attention variant '{name}'" in line]
        assert line.endswith("uninstall that plug-in")
    assert "task 'unbuilt' cannot be built (ValueError: boom)" in err
    assert "task 'undefined' cannot be built (AttributeError: 'Undefined' object has no" in err
