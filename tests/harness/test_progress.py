"""The display of runs, and event files of TensorBoard."""

import io
import os
import platform
import sys
from unittest import mock
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from harness import events
from harness.cli.grid_view import GridView, bars
from harness.runner import Reported
from tests.harness.specs import POINT, STATE, Clock
from tests.reports.conftest import make_record


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("errors_terminal", [False, True])
def test_a_traceback_goes_where_no_bar_erases_it(terminal, errors_terminal):
    out, err = io.StringIO(), io.StringIO()
    with bars(Console(file=out, force_terminal=terminal)) as bar:
        view = GridView(bar, Console(file=err, force_terminal=errors_terminal))
        view.ended(make_record("softmax"), "Traceback: boom")
    shared = terminal and errors_terminal
    assert ("Traceback: boom" in out.getvalue()) == shared
    assert ("Traceback: boom" in err.getvalue()) == (not shared)


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(1), ValueError("a defect")])
def test_a_progress_that_cannot_be_shown_changes_no_run(store, error):
    broken = MagicMock(side_effect=error)
    reported = Reported(store.locks.acquire("name", threads=1, steps=9), broken)
    with pytest.warns(UserWarning, match="progress is not shown") as caught:
        reported("phase", "train")
        reported("phase", "test")
    broken.assert_called_once()
    assert (len(caught), store.locks.state("name").phase) == (1, "test")


def test_an_interrupt_while_progress_is_shown_is_an_interrupt(store):
    interrupted = MagicMock(side_effect=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        Reported(store.locks.acquire("name", threads=1, steps=9), interrupted)("phase", "train")


class Shown:
    """A view of one run, of this process or another one."""

    def __init__(self, *, here: bool, terminal: bool):
        self.clock, self.out = Clock(), io.StringIO()
        console = Console(file=self.out, force_terminal=terminal)
        self.bars, self.spec = bars(console, self.clock), make_record("softmax").spec
        self.view = GridView(self.bars, console, self.clock)
        process = {"pid": os.getpid(), "host": platform.node()} if here else {}
        self.state = STATE.model_copy(update={"steps": 1000, **process})

    def show(self, at: float, phase: str, step: int = 0, dev: float | None = None) -> float | None:
        """Show a state at a time; return the remaining seconds of the bar of the run."""
        point = POINT.model_copy(update={"step": step, "dev": dev}) if step else None
        self.clock.now = at
        self.view.show(self.spec, self.state.model_copy(update={"phase": phase, "point": point}))
        return self.bars.tasks[-1].time_remaining

    @property
    def lines(self) -> list[str]:
        return self.out.getvalue().splitlines()


@pytest.mark.parametrize("here", [False, True])
def test_the_remaining_time_is_known_from_steps_of_training_alone(here):
    shown = Shown(here=here, terminal=True)
    assert [shown.show(at, "load data") for at in (0, 90)] == [None, None]
    # It continues at step 400: how long the steps before took is not known here.
    assert shown.show(310, "train", 400) is None
    assert shown.show(320, "train", 500) == pytest.approx(50)
    assert shown.show(340, "train", 600) == pytest.approx(60)
    assert shown.show(350, "test", 1000) is None


def test_the_points_of_a_run_of_this_process_are_lines_and_other_runs_have_one():
    name = "softmax listops seed 0"
    here = Shown(here=True, terminal=False)
    here.show(0, "train")
    for at, step, dev in ((1, 1, None), (2, 2, 50.0), (3, 3, None), (13, 4, None)):
        here.show(at, "train", step, dev)
    steps = ["1/1000 loss 1.000", "2/1000 loss 1.000 dev 50", "4/1000 loss 1.000"]
    assert here.lines == [f"{name}: train", *(f"{name}: step {text} (1 s)" for text in steps)]
    elsewhere = Shown(here=False, terminal=False)
    for step in (1, 2):
        elsewhere.show(20 * step, "train", step, 50.0)
    assert elsewhere.lines == [f"{name}: process 1 of vm"]


def test_the_remaining_time_of_a_grid_is_known_when_a_run_has_ended():
    shown = Shown(here=False, terminal=False)
    shown.view.begin(4, 1)
    shown.show(300, "train", 1)
    assert "left" not in shown.view.summary()
    shown.view.ended(make_record("softmax"), "")
    text = "2 of 4 runs done, 0 running, 0 failed, about 10 min left"
    assert shown.view.summary() == text and shown.lines[-1] == f"softmax listops seed 0: ok; {text}"
    shown.view.refresh(2)
    assert shown.lines[-1] == text.replace(", about", ", 2 running elsewhere, about")


@pytest.fixture
def writer(monkeypatch) -> mock.MagicMock:
    """The class of a writer that writes nothing."""
    writer = mock.MagicMock()
    monkeypatch.setattr(events, "require_tensorboard", lambda: writer)
    return writer


def test_every_scalar_of_a_curve_is_written_at_its_step_and_time(writer, tmp_path):
    record = make_record(started="1970-01-01T00:01:00Z")
    point = record.curve[0].model_copy(update={"losses": {"ksvd": 0.5}, "dev": 25.0})
    (folder,) = events.write_events([record.model_copy(update={"curve": [point]})], tmp_path)
    assert folder.parent == tmp_path and folder.name.endswith(record.spec.id)
    writer.assert_called_once_with(str(folder))
    assert writer().__enter__().add_scalar.mock_calls == [
        mock.call(tag, value, 300, walltime=61.0)
        for tag, value in (("loss", 2.0), ("loss/ksvd", 0.5), ("dev accuracy, %", 25.0))
    ]


def test_events_of_an_earlier_call_are_replaced(writer, tmp_path):
    record = make_record()
    (folder,) = events.write_events([record], tmp_path)
    folder.mkdir()
    for name in ("events.out.tfevents.1", "notes.txt"):
        (folder / name).touch()
    events.write_events([record], tmp_path)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_without_tensorboard_nothing_is_run_and_the_remedy_is_named(rejected, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    line = rejected("run", "--attention", "softmax", "--tensorboard", "events")
    assert "pip install -c constraints.txt -e '.[tensorboard]'" in line
    assert not store.folder.exists()


@pytest.mark.slow
def test_the_curves_of_chosen_runs_are_drawn(output, rejected, store):
    store.write(make_record("softmax"))
    store.write(make_record("primal"))
    out = output("report", "--curves", "--attention", "primal")
    assert out.count("curves.") == 3
    text = (store.folder / "curves.csv").read_text()
    assert "primal" in text and "softmax" not in text
    assert "make one with: harness run" in rejected("report", "--curves", "--task", "text")
