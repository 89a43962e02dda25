"""Plug-ins that are wrong in every way: each is named in one line, and none ends the listing."""

import re
from importlib import metadata

import jaxtyping
import pytest
import torch

from tasks import Split, Task
from tasks.registry import tasks
from zoo.contract import Attended, Traits
from zoo.projected import ProjectedAttention

CLAIMS = {"causal": False, "cross": True, "linear": True, "stochastic": False, "recurrent": False}


class Swallows(ProjectedAttention):
    """Takes whatever it is given."""

    traits = Traits(**CLAIMS)

    def __init__(self, size, **options):
        super().__init__(size)

    def attend(self, q, k, v, mask):
        return v


class Bare(ProjectedAttention):
    """Returns its tokens without their wrapping."""

    traits = Traits(**CLAIMS)

    def forward(self, x, context, mask):
        return super().forward(x, context, mask).tokens

    def attend(self, q, k, v, mask):
        return q


class Nothing(ProjectedAttention):
    """Returns no number."""

    traits = Traits(**CLAIMS)

    def forward(self, x, context, mask):
        return Attended(super().forward(x, context, mask).tokens * torch.nan)

    def attend(self, q, k, v, mask):
        return q


class Breaks(ProjectedAttention):
    """Cannot be built."""

    traits = Traits(**CLAIMS)

    def __init__(self, size):
        raise ValueError("boom")

    def attend(self, q, k, v, mask):
        return q


class Unposed(Task):
    """A task that cannot be built."""

    name, version = "unposed", 1

    def __init__(self):
        raise ValueError("boom")

    def load(self, split) -> Split:
        raise NotImplementedError


class Untold(Unposed):
    """A task that does not tell its classes."""

    name = "untold"

    def __init__(self):
        self.vocabulary, self.max_len = 2, 8


# The broken ones among them are warned of; that is one of the things looked at here.
pytestmark = pytest.mark.filterwarnings("always")

BAD = {
    "absent": "no_such_package_at_all:Attention",
    "raises": "this.module.does_not_parse:Attention",
    "swallows": f"{__name__}:Swallows",
    "stranger": "pathlib:Path",
    "bare": f"{__name__}:Bare",
    "nothing": f"{__name__}:Nothing",
    "breaks": f"{__name__}:Breaks",
}

UNTOLD = (
    "task 'untold' cannot be built (AttributeError: 'Untold' object has no attribute 'classes'); "
    "mend it, or its options"
)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    points = {
        "zoo.variants": [metadata.EntryPoint(*of, "zoo.variants") for of in BAD.items()],
        "tasks.tasks": [
            metadata.EntryPoint(name.lower(), f"{__name__}:{name}", "tasks.tasks")
            for name in ("Unposed", "Untold")
        ],
    }

    others = metadata.entry_points

    def entry_points(**wanted):
        return points.get(wanted.get("group", "")) or others(**wanted)

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def test_none_ends_the_listing_and_each_that_cannot_be_used_is_a_line(call):
    code, out, err = call("list")
    rows = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert code == 0
    assert {"softmax", "primal", "bare", "nothing"} <= set(rows)
    assert not {"absent", "raises", "swallows", "stranger"} & set(rows)
    lines = [line for line in err.splitlines() if line.startswith("harness: warning: ")]
    for name in ("absent", "raises", "swallows", "stranger"):
        (line,) = [line for line in lines if f"attention variant '{name}'" in line]
        assert line.endswith("mend or uninstall that plug-in")


def test_a_task_that_cannot_be_built_costs_the_page_of_the_tasks_its_card_alone(
    call, monkeypatch, tmp_path
):
    few = ("parity", "unposed", "untold")
    monkeypatch.setattr(tasks, "items", lambda: [(name, tasks.find(name)) for name in few])
    code, _, err = call("cards", "--out", str(tmp_path / "cards.md"))
    assert (code, err.count("\n")) == (0, 2)
    assert "task 'unposed' cannot be built (ValueError: boom); mend it, or its options" in err
    assert UNTOLD in err
    page = (tmp_path / "cards.md").read_text("utf-8")
    assert "## parity" in page and "unposed" not in page and "untold" not in page


def test_a_task_that_does_not_tell_its_classes_is_refused_as_itself(call):
    code, out, err = call("run", "-a", "softmax", "-t", "untold", "--budget", "smoke")
    assert (code, out, err) == (2, "", f"harness: {UNTOLD}\n")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "ModuleNotFoundError"),
        ("swallows", r"takes \*\*options; name every option in the signature instead"),
        ("stranger", "is not a subclass of zoo.contract.Attention"),
    ],
)
def test_one_that_cannot_be_used_is_refused_when_named(call, store, name, reason):
    code, out, err = call("run", "-a", name, "--budget", "smoke")
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert f"'{name}' cannot be loaded" in line
    assert re.search(reason, line)
    assert not store.folder.exists()


@pytest.mark.parametrize("command", [("run", "-a", "breaks"), ("check", "breaks")])
def test_one_that_cannot_be_built_is_refused_in_one_line(call, store, command):
    code, out, err = call(*command)
    assert (code, out) == (2, "")
    (line,) = [line for line in err.splitlines() if not line.startswith("harness: warning: ")]
    assert line.endswith("cannot be built (ValueError: boom); mend it, or its options")
    assert not store.folder.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bare", "TypeError: bare returned a Tensor; a variant returns zoo.contract.Attended"),
        ("nothing", "task loss is nan by step"),
    ],
)
def test_one_that_fails_as_it_runs_is_a_row_with_its_reason(call, unmeasured, name, reason):
    code, out, _ = call("run", "-a", f"softmax,{name}", "--budget", "smoke")
    assert code == 1
    (row,) = [line for line in out.splitlines() if line.startswith(f"{name}  ")]
    assert reason in row
    assert any(line.startswith("softmax") and "failed" not in line for line in out.splitlines())


@pytest.mark.parametrize(
    ("name", "reason"), [("bare", "bare returned a Tensor"), ("nothing", "failed at")]
)
def test_its_checks_tell_what_is_wrong_with_it(call, monkeypatch, name, reason):
    from zoo import conformance

    quick = tuple(check for check in conformance.CHECKS if check.name in ("lengths", "precisions"))
    monkeypatch.setattr(conformance, "CHECKS", quick)
    code, out, _ = call("check", name)
    assert code == 1
    *lines, _ = out.splitlines()
    assert any(line.startswith("FAIL") and reason in line for line in lines)
    assert "AttributeError" not in out
