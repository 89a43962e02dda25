"""The display of a run."""

import io
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from harness.cli.progress import GridView, bars
from harness.jobs import Reported
from harness.records.locks import State
from harness.records.record import Point
from tests.harness.specs import STATE, Clock


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("errors_terminal", [False, True])
def test_a_traceback_goes_where_no_bar_erases_it(plan, terminal, errors_terminal):
    out, err = io.StringIO(), io.StringIO()
    console = Console(file=out, force_terminal=terminal)
    with bars(console) as bar:
        view = GridView(bar, Console(file=err, force_terminal=errors_terminal), str)
        view.callback(plan()).failed("Traceback: boom")
    shared = terminal and errors_terminal
    assert ("Traceback: boom" in out.getvalue()) == shared
    assert ("Traceback: boom" in err.getvalue()) == (not shared)


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(1), ValueError("a defect")])
def test_a_progress_that_cannot_be_shown_changes_no_run(store, error):
    broken = MagicMock(**{"phase.side_effect": error})
    reported = Reported(broken, store.locks.acquire("name", threads=1, steps=9))
    with pytest.warns(UserWarning, match="progress is not shown") as caught:
        reported.phase("train")
        reported.phase("test")
    broken.phase.assert_called_once_with("train")
    assert (len(caught), store.locks.state("name").phase) == (1, "test")


def test_an_interrupt_while_progress_is_shown_is_an_interrupt(store):
    callback = MagicMock(**{"phase.side_effect": KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):
        Reported(callback, store.locks.acquire("name", threads=1, steps=9)).phase("train")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def view(clock) -> GridView:
    console = Console(file=io.StringIO(), force_terminal=True)
    return GridView(bars(console, clock), console, lambda spec: "name", clock)


def state(phase, step) -> State:
    """The state of a run of another process."""
    return STATE.model_copy(update={"phase": phase, "step": step, "steps": 1000})


def left(view):
    return view._bar.tasks[0].time_remaining


def test_the_remaining_time_is_known_from_steps_of_training_alone(plan, view, clock):
    spec = plan()
    callback = view.callback(spec)

    def point(step, at):
        clock.now = at
        callback.point(Point(step=step, seconds=1, loss=1, losses={}), 1000)
        return left(view)

    for phase in ("load data", "measure cost", "train"):
        clock.now += 100
        callback.phase(phase)
        assert left(view) is None
    # It continues at step 400: how long the steps before took is not known here.
    assert point(400, 310) is None
    assert point(500, 320) == pytest.approx(50)
    assert point(600, 340) == pytest.approx(60)
    callback.phase("test")
    assert left(view) is None


def test_the_remaining_time_of_another_process_is_known_from_its_steps(plan, view, clock):
    spec = plan()
    view.begin(1, 0)
    view.started(spec)

    def look(phase, step, at):
        clock.now = at
        view.refresh({"name": state(phase, step)}, 0)
        return left(view)

    assert look("load data", 0, 0) is look("measure cost", 0, 90) is look("train", 0, 100) is None
    assert look("train", 100, 110) == pytest.approx(90)
    assert look("test", 1000, 200) is None


def test_a_grid_has_no_remaining_time_before_a_run_has_ended(plan, view, clock):
    spec = plan()
    view.begin(4, 0)
    view.started(spec)
    clock.now = 300
    view.refresh({"name": state("train", 1)}, 0)
    assert left(view) is None and "left" not in view.summary()
