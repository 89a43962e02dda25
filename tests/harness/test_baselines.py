"""The baselines of a task: one file in the store, fitted step by step and once."""

import json
import threading
from pathlib import Path

import filelock
import pytest

from harness import baselines
from harness.records.files import with_checksum
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


def fit(spec, stored):
    return baselines.fit(spec.task, stored)


def test_an_interrupted_fit_keeps_its_steps_and_continues(tiny, stored, fits, monkeypatch, caplog):
    spec = tiny()
    caplog.set_level("INFO", "harness.baselines")
    with pytest.raises(KeyboardInterrupt):
        fit(spec, stored)
    (partial,), broken = stored.read()
    assert (partial.left, partial.scores, broken) == (
        ("c",), {"model a": 25.0, "model b": 25.0}, []
    )  # fmt: skip
    whole = fit(spec, stored)
    assert fits == ["a", "b", "c"] and whole.left == () and len(whole.scores) == 3
    lines = [f"baselines of {spec.task.key}: {step}" for step in ("a (1", "b (2", "c (3", "c (3")]
    assert caplog.messages == [f"{line} of 3)" for line in lines]
    # A complete file needs no data.
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "data_of", raising(AssertionError("data")))
        found = fit(spec, stored)
    assert found == whole == stored.find(spec.task)
    monkeypatch.setattr(baselines, "BASELINES_VERSION", 10**6)
    assert fit(spec, stored).version == 10**6
    assert fits == [*"abc", *"abc"]


def test_two_processes_fit_once(tiny, stored, fits, monkeypatch):
    spec, waits, acquire = tiny(), threading.Event(), filelock.FileLock.acquire

    def wait(lock, *arguments, **options):
        waits.set()
        return acquire(lock, *arguments, **options)

    with pytest.raises(KeyboardInterrupt):
        fit(spec, stored)
    other = threading.Thread(target=lambda: (fit(spec, stored), waits.set()))
    with stored.locks.alone(spec.task.file_name):
        monkeypatch.setattr(filelock.FileLock, "acquire", wait)
        other.start()
        waits.wait()
        assert fits == ["a", "b"]
    other.join()
    assert fits == ["a", "b", "c"]


def test_a_run_fits_baselines_after_training_and_a_table_has_them(call, output, stored, outcomes):
    out = output("run", "--attention", "softmax", *SET)
    (found,), _ = stored.read()
    names = [line for line in out.splitlines() if "baselines of listops@1" in line]
    assert [line.rpartition(": ")[2] for line in names] == [
        "constant answers (1 of 3)", "bag of tokens (2 of 3)", "first 16 tokens (3 of 3)"
    ]  # fmt: skip
    assert out.index(": test\n") < out.index(names[0])
    assert found.scores["chance"] == 10.0 and found.scores.keys() == {
        "chance", "majority", "bag of tokens", "first 16 tokens"
    }  # fmt: skip
    assert "(the strongest: listops: " in out and "No baselines" not in out
    again = call("run", "--attention", "softmax", *SET)
    assert again[0] == 0 and "baselines of" not in again[1]


@pytest.mark.slow
def test_a_table_without_the_file_names_its_command(call, output, store, stored, outcomes):
    output("run", "--attention", "softmax,none", *SET)
    (path,) = Path(stored.folder).glob("*.json")
    content = path.read_bytes()
    path.unlink()
    out = output("report")
    assert "No baselines of listops; fit them with: harness report" in " ".join(out.split())
    assert "(the strongest: listops: none: " in out
    output("report", "--baselines")
    old, new = json.loads(content), json.loads(path.read_bytes())
    other = {"started": "", "checksum": ""}
    assert old | other == new | other
    assert "No baselines" not in (store.folder / "runs.md").read_text()
    del new["checksum"]
    path.write_text(with_checksum(json.dumps({**new, "version": 1}, indent=1) + "\n"))
    call("report")
    assert "No baselines" in (store.folder / "runs.md").read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_baselines_that_cannot_be_fitted_leave_the_records(call, store, outcomes, monkeypatch):
    monkeypatch.setattr(baselines, "steps", raising(RuntimeError("the plug-in\nis wrong")))
    code, out, err = call("run", "--attention", "softmax", *SET)
    assert code == 0 and len(store.read()[0]) == 1
    assert "No baselines of listops" in out and err.count("\n") == 1 and "the plug-in" in err
    assert call("report", "--baselines")[0] == 1
