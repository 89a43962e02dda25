"""A cell in its own process: every way in which it can end is an outcome."""

import multiprocessing
import os
import resource
import signal
import sys
from pathlib import Path

import pytest
import torch

from harness.cost.sweep import measure_in_process
from tests.harness.specs import COST, LIMITS, MEASURED


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let the new process import this module, where the functions to call are."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


def measured(spec, limits, budget, timeout):
    return MEASURED.model_copy(update={"samples": torch.get_num_threads(), "limits": limits})


def hangs(spec, limits, budget, timeout):
    signal.pause()


def crashes(spec, limits, budget, timeout):
    os.kill(os.getpid(), signal.SIGSEGV)


def is_killed(spec, limits, budget, timeout):
    os.kill(os.getpid(), signal.SIGKILL)


def exits(spec, limits, budget, timeout):
    sys.exit(0)


def raises(spec, limits, budget, timeout):
    raise ValueError("an error\nin two lines")


def allocates_everything(spec, limits, budget, timeout):
    torch.empty(2**44, dtype=torch.int8)


def tells_its_limit(spec, limits, budget, timeout):
    raise ValueError(resource.getrlimit(resource.RLIMIT_AS)[0])


def outcome(measure, timeout=120.0, spec=COST):
    return measure_in_process(spec, LIMITS, budget=0.0, timeout=timeout, measure=measure)


def test_a_measurement_comes_back_with_the_threads_of_its_specification():
    status, reason, result = outcome(measured, spec=COST.model_copy(update={"threads": 3}))
    assert (status, reason) == ("ok", "")
    assert result.samples == 3 and result.limits == LIMITS


@pytest.mark.parametrize(
    ("measure", "status", "reason"),
    [
        (crashes, "crashed", "it was ended by SIGSEGV"),
        (is_killed, "out_of_memory", "the system ended it, probably for its memory"),
        (exits, "failed", "SystemExit: 0"),
        (raises, "failed", "ValueError: an error"),
    ],
)
def test_a_process_that_ends_early_has_a_reason(measure, status, reason, capfd):
    actual = outcome(measure)
    assert (actual.status, actual.measured) == (status, None)
    assert actual.reason.startswith(reason)


def test_an_allocation_that_fails_is_out_of_memory():
    actual = outcome(allocates_everything)
    assert actual.status == "out_of_memory" and "memory" in actual.reason


def test_the_memory_of_a_cell_on_a_cpu_is_limited(capfd):
    # No limit is -1.
    assert int(outcome(tells_its_limit).reason.removeprefix("ValueError: ")) > 0


def test_a_process_that_hangs_is_ended_after_the_timeout():
    actual = outcome(hangs, timeout=0.5)
    assert (actual.status, actual.reason) == ("timeout", "it took more than 0.5 s")
    assert not multiprocessing.active_children()
