"""Faulty plug-ins: each is reported in one line, and none ends a command or a grid."""

import sys

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


class Breaks(Good):
    """Cannot be built."""

    def __init__(self, size):
        raise ValueError("boom")


class ExitsEarly(Good):
    """Ends the process when it is built."""

    def __init__(self, size):
        sys.exit(0)


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
    "absent": "no_such_package_at_all:Attention",
    "raises": "this.module.does_not_parse:Attention",
    "swallows": f"{__name__}:Swallows",
    "stranger": "pathlib:Path",
    "good": f"{__name__}:Good",
    "breaks": f"{__name__}:Breaks",
    "exits-early": f"{__name__}:ExitsEarly",
}

UNDEFINED = "task 'undefined' cannot be built (AttributeError: 'Undefined' object has no attribute "


@pytest.fixture(autouse=True)
def installed(install, no_type_checks):
    tasks = {name.lower(): f"{__name__}:{name}" for name in ("Unbuilt", "Undefined")}
    install({"zoo.variants": BAD, "tasks.tasks": tasks})


def test_the_listing_has_one_line_for_each_that_cannot_be_loaded(call):
    code, out, err = call("list")
    rows = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert code == 0
    assert {"softmax", "primal", "good"} <= set(rows)
    assert not {"absent", "raises", "swallows", "stranger"} & set(rows)
    lines = [line for line in err.splitlines() if line.startswith("harness: warning: ")]
    for name in ("absent", "raises", "swallows", "stranger"):
        (line,) = [line for line in lines if f"attention variant '{name}'" in line]
        assert line.endswith("uninstall that plug-in")
    assert "task 'unbuilt' cannot be built (ValueError: boom)" in err
    assert not {"unbuilt", "undefined"} & {name.partition("@")[0] for name in rows}


def test_a_task_that_does_not_define_its_classes_is_one_line(rejected):
    line = rejected("run", "-a", "softmax", "-t", "undefined", "--budget", "smoke")
    assert line.startswith(f"harness: {UNDEFINED}")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("command", "reason"), [
    (("run", "-a", "breaks"), "ValueError: boom"),
    (("run", "-a", "exits-early"), "it exits with 0"), (("check", "breaks"), "ValueError: boom"),
])  # fmt: skip
def test_one_that_cannot_be_built_is_one_line(call, store, command, reason):
    budget = ("--budget", "smoke", "-t", "majority") if command[0] == "run" else ()
    code, _, err = call(*command, *budget)
    assert code == 2
    (line,) = [line for line in err.splitlines() if not line.startswith("harness: warning: ")]
    assert "cannot be built" in line and reason in line
    assert not store.folder.exists()
