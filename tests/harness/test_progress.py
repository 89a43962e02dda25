"""The display of runs, and event files of TensorBoard."""

import io
import logging
import sys
from unittest import mock

import pytest

from harness import events
from harness.cli import _lines
from harness.cli.progress import CLEAR
from harness.records.store import summary
from harness.runner import Reported
from tests.harness.specs import POINT, Clock
from tests.reports.conftest import make_record


def test_the_points_of_a_run_are_lines_and_a_traceback_is_kept(store, caplog, monkeypatch):
    clock = Clock()
    caplog.set_level("INFO", "harness")
    monkeypatch.setattr("harness.runner.time.monotonic", clock)
    reported = Reported(store.locks.acquire("name", threads=1, steps=1000), "a run")
    reported("phase", "train")
    for at, step, dev in ((11, 1, None), (12, 2, 50.0), (13, 3, None), (23, 4, None)):
        clock.now = at
        reported("point", POINT.model_copy(update={"step": step, "dev": dev}))
    reported("trace", "Traceback: boom")
    steps = ["1/1000 loss 1.000", "2/1000 loss 1.000 dev 50", "4/1000 loss 1.000"]
    assert caplog.messages == ["a run: train", *(f"a run: step {text} (1 s)" for text in steps)]
    assert (store.locks.state("name").phase, reported.trace) == ("train", "Traceback: boom")


def test_the_state_of_a_grid_has_the_time_that_is_left_when_it_is_known():
    assert summary(1, 4, 1, 0) == "1 of 4 runs done, 1 running, 0 failed"
    text = "2 of 4 runs done, 0 running, 1 failed, 2 running elsewhere, about 10 min left"
    assert summary(2, 4, 0, 1, 2, 600.0) == text
    assert summary(2, 4, 0, 0, left=99.4).endswith("99 s left")
    assert summary(2, 4, 0, 0, left=7200.0).endswith("2.0 h left")


def test_every_scalar_of_a_curve_is_written_at_its_step_and_time(tmp_path, monkeypatch):
    writer = mock.MagicMock()
    monkeypatch.setattr(events, "require_tensorboard", lambda: writer)
    record = make_record(started="1970-01-01T00:01:00Z")
    point = record.curve[0].model_copy(update={"losses": {"ksvd": 0.5}, "dev": 25.0})
    (folder,) = events.write_events([record.model_copy(update={"curve": [point]})], tmp_path)
    assert folder.parent == tmp_path and folder.name.endswith(record.spec.id)
    writer.assert_called_once_with(str(folder))
    assert writer().__enter__().add_scalar.mock_calls == [
        mock.call(tag, value, 300, walltime=61.0)
        for tag, value in (("loss", 2.0), ("loss/ksvd", 0.5), ("dev accuracy, %", 25.0))
    ]


def test_without_tensorboard_nothing_is_run_and_the_remedy_is_named(rejected, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    line = rejected("run", "--attention", "softmax", "--tensorboard", "events")
    assert "pip install -c constraints.txt -e '.[tensorboard]'" in line
    assert not store.folder.exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_has_one_updated_line_and_a_pipe_a_line_for_each_message(terminal, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("COLUMNS", "40")
    logger = logging.getLogger("harness.test")
    with _lines():
        logger.debug("[=  ] 1 of 3 runs done", extra={"bar": "grid"})
        logger.info("a run: step 5/9", extra={"bar": "run"})
        logger.info("a result")
        for name in ("grid", "run"):
            logger.debug("", extra={"bar": name})
    if not terminal:
        assert stream.getvalue() == "a run: step 5/9\na result\n"
        return
    *before, last = stream.getvalue().split(CLEAR)
    bar = "[=  ] 1 of 3 runs done"
    line = f"{bar} | a run: step 5/9"[:39]
    assert before == ["", bar, line, "a result\n", line, "a run: step 5/9"] and last == ""


@pytest.mark.slow
def test_the_curves_of_chosen_runs_are_drawn(output, rejected, store):
    for name in ("softmax", "primal"):
        store.write(make_record(name))
    assert output("report", "--curves", "--attention", "primal").count("curves.") == 3
    text = (store.folder / "curves.csv").read_text()
    assert "primal" in text and "softmax" not in text
    assert "make one with: harness run" in rejected("report", "--curves", "--task", "text")
