"""The baselines of a task: one file in the store, fitted step by step and once."""

import threading

import filelock
import pytest

from harness import baselines
from harness.records.store import BaselineStore
from tests.harness.conftest import SMALL
from tests.harness.specs import raising

SET = ["--task", "listops", "--budget", "smoke", "--set", "train.steps=2", *SMALL]


@pytest.fixture
def stored(store) -> BaselineStore:
    return BaselineStore.within(store.folder)


@pytest.fixture
def fits(monkeypatch) -> list[str]:
    # The steps that were fitted, of three; the last one ends the process once.
    fitted, left = [], [KeyboardInterrupt]

    def step(name):
        def fit():
            if name == "c" and left:
                raise left.pop()
            fitted.append(name)
            return {f"model {name}": 0.25}

        return fit

    monkeypatch.setattr(baselines, "steps", lambda *_: {name: step(name) for name in "abc"})
    return fitted


def test_an_interrupted_fit_keeps_its_steps_and_continues(tiny, stored, fits, monkeypatch, caplog):
    task = tiny().task
    caplog.set_level("INFO", "harness.baselines")
    with pytest.raises(KeyboardInterrupt):
        baselines.fit(task, stored)
    (partial,), broken = stored.read()
    scores = {"model a": 25.0, "model b": 25.0}
    assert (partial.left, partial.scores, broken) == (("c",), scores, [])
    whole = baselines.fit(task, stored)
    assert fits == ["a", "b", "c"] and whole.left == () and len(whole.scores) == 3
    steps = ["a (1", "b (2", "c (3", "c (3"]
    assert caplog.messages == [f"baselines of {task.key}: {step} of 3)" for step in steps]
    # A complete file needs no data.
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "data_of", raising(AssertionError("data")))
        assert baselines.fit(task, stored) == whole == stored.find(task)
    monkeypatch.setattr(baselines, "BASELINES_VERSION", 10**6)
    assert baselines.fit(task, stored).version == 10**6 and fits == [*"abc", *"abc"]


def test_two_processes_fit_once(tiny, stored, fits, recorded):
    task, waits = tiny().task, threading.Event()
    with pytest.raises(KeyboardInterrupt):
        baselines.fit(task, stored)
    other = threading.Thread(target=lambda: (baselines.fit(task, stored), waits.set()))
    with stored.locks.alone(task.file_name):
        recorded(filelock.FileLock, "acquire", lambda *_: waits.set())
        other.start()
        waits.wait()
        assert fits == ["a", "b"]
    other.join()
    assert fits == ["a", "b", "c"]


def test_a_run_fits_baselines_after_training_and_a_table_has_them(call, output, stored, outcomes):
    out = output("run", "--attention", "softmax", *SET)
    (found,), _ = stored.read()
    lines = [line for line in out.splitlines() if "baselines of listops@1" in line]
    names = ["constant answers (1 of 3)", "bag of tokens (2 of 3)", "first 16 tokens (3 of 3)"]
    assert [line.rpartition(": ")[2] for line in lines] == names
    assert out.index(": test\n") < out.index(lines[0]) and found.scores["chance"] == 10.0
    assert {*found.scores} == {"chance", "majority", "bag of tokens", "first 16 tokens"}
    assert "(the strongest: listops: " in out and "No baselines" not in out
    assert "baselines of" not in output("run", "--attention", "softmax", *SET)


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_a_table_without_the_file_names_its_command(call, output, store, stored, monkeypatch):
    with monkeypatch.context() as failing:
        failing.setattr(baselines, "steps", raising(RuntimeError("the plug-in\nis wrong")))
        code, out, err = call("run", "--attention", "softmax,none", "--no-cost", *SET)
        assert (code, len(store.read()[0]), err.count("\n")) == (0, 2, 1) and "the plug-in" in err
        assert "(the strongest: listops: none: " in out and call("report", "--baselines")[0] == 1
    out = " ".join(output("report").split())
    assert "No baselines of listops; fit them with: harness report" in out
    page = store.folder / "runs.md"
    output("report", "--baselines")
    assert "No baselines" not in page.read_text()
    (found,) = stored.read()[0]
    stored.write(found.model_copy(update={"version": 1}))
    output("report")
    assert "No baselines" in page.read_text()
