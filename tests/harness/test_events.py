"""Event files of TensorBoard, and the commands that write them."""

import sys
from unittest import mock

import pytest

from harness import events
from tests.reports.conftest import make_record


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
def test_the_curves_of_chosen_runs_are_drawn(call, rejected, store):
    store.write(make_record("softmax"))
    store.write(make_record("primal"))
    code, out, _ = call("report", "--curves", "--attention", "primal")
    assert code == 0 and out.count("curves.") == 3
    text = (store.folder / "curves.csv").read_text()
    assert "primal" in text and "softmax" not in text
    assert "make one with: harness run" in rejected("report", "--curves", "--task", "text")
