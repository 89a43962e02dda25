"""The state of an unfinished run on disk."""

import hashlib
import io
import json
import os
import pickle
import random
from functools import partial
from pathlib import Path

import pytest
import torch

from harness import checkpoint
from harness.environment import describe
from harness.records.record import Point
from harness.train import Progress, fit
from tests.harness.specs import nothing
from zoo.registry import UserError

HERE = describe("cpu")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "one.checkpoint"


def finish(trainer, dev, progress, save=nothing, save_is_due=lambda: False) -> list:
    fit(trainer, dev, progress, nothing, save, save_is_due)
    losses = [(point.step, point.loss, point.losses, point.dev) for point in progress.curve]
    states = [*progress.best_state.values(), *trainer.model.state_dict().values()]
    return [losses, progress.best_step, [state.tolist() for state in states]]


def test_a_run_that_continues_from_a_checkpoint_equals_one_without_a_break(
    tiny, prepare, dev, path
):
    # The checkpoint is between two points of the curve, after an evaluation.
    spec = tiny("performer+primal", steps=200, evaluations=20, optimiser="muon")

    def late() -> Progress:
        before = Point(step=188, seconds=0.1, loss=1, losses={})
        return Progress(environment=HERE, step=188, curve=[before])

    expected = finish(prepare(spec), dev, late())
    trainer, progress, seconds = prepare(spec), late(), []

    def save():
        if progress.step == 193:
            checkpoint.save(path, trainer, progress)
            seconds.append(progress.seconds)

    # Saving does not change the run.
    assert finish(trainer, dev, progress, save, lambda: progress.step == 193) == expected
    resumed = prepare(spec)
    torch.manual_seed(99)
    for parameter in resumed.model.parameters():
        parameter.data.fill_(1.0)
    loaded = checkpoint.load(path, resumed)
    assert [point.step for point in loaded.curve] == [188, 190, 192]
    assert (loaded.step, loaded.best_step, [loaded.seconds]) == (193, 190, seconds)
    assert finish(resumed, dev, loaded) == expected


@pytest.fixture
def saved(tiny, prepare, dev, path):
    trainer, progress = prepare(tiny()), Progress(environment=HERE)
    fit(trainer, dev, progress, nothing, nothing)
    checkpoint.save(path, trainer, progress)
    assert list(path.parent.iterdir()) == [path]
    return path


@pytest.fixture
def rejected(tiny, prepare, path):
    def make(*fields, error=UserError, match="is not a checkpoint of this run", **train) -> str:
        with pytest.raises(error, match=match) as caught:
            checkpoint.load(path, prepare(tiny(*fields, **train)))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return make


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def sealed(content: bytes) -> bytes:
    return content + f"sha256 {hashlib.sha256(content).hexdigest()}\n".encode()


def archive(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(("write", "execute"), [
    (partial(pickle.dumps, protocol=2), pickle.loads),
    (archive, lambda content: torch.load(io.BytesIO(content), weights_only=False)),
], ids=["plain", "zip"])  # fmt: skip
def test_a_checkpoint_is_never_executed(rejected, path, tmp_path, write, execute):
    touched = tmp_path / "touched"
    content = write({"model": Touch(touched)})
    path.parent.mkdir()
    path.write_bytes(sealed(content))
    assert str(path) in rejected(match="does not hold tensors by name") and not touched.exists()
    # Loading it by pickle executes it.
    execute(content)
    assert touched.exists()


def test_a_damaged_checkpoint_is_rejected_and_left(rejected, saved):
    whole = saved.read_bytes()
    for content in (
        b"", whole[: len(whole) // 2], whole[:-1], whole + b"\0", random.Random(0).randbytes(1000),
        b"\x80\x02J\x00", whole[-checkpoint.TRAILER :], whole[: -checkpoint.TRAILER],
    ):  # fmt: skip
        saved.write_bytes(content)
        assert str(saved) in rejected(error=checkpoint.DamagedError, match="damaged: .* SHA-256")
        assert saved.read_bytes() == content


IMPOSSIBLE = [
    {"step": -1}, {"step": 5}, {"step": 3}, {"step": 2.5}, {"seconds": -1.0}, {"best": "high"},
    {"best_step": 5}, {"elapsed": 1e308}, {"environment": 3}, {"curve": "all"},
]  # fmt: skip


def test_what_is_not_a_checkpoint_of_this_run_is_rejected_in_one_line(rejected, saved):
    rejected("primal")
    rejected(steps=100)
    state = checkpoint.read(saved)
    name = next(iter(state["model"]))
    wrong = [{k: v for k, v in state.items() if k != part} for part in state]
    wrong += [{**state, part: {}} for part in ("best_state", "optimizer", "random", "model")]
    wrong += [{**state, "model": {**state["model"], name: torch.zeros(3, 5, 7)}}]
    for content in wrong:
        checkpoint.write(saved, content, "checkpoint")
        assert rejected().startswith(f"{saved} is not a checkpoint of this run (")
    progress = json.loads(state["progress"])
    wrong = [{**state, "progress": json.dumps(progress | figures)} for figures in IMPOSSIBLE]
    for content in (*wrong, [1, 2], {}, {"model": 3}, torch.zeros(2)):
        saved.write_bytes(sealed(archive(content)))
        rejected()


@pytest.mark.timeout(300)
def test_a_fifo_is_not_waited_for(rejected, path):
    path.parent.mkdir()
    os.mkfifo(path)
    rejected(error=checkpoint.DamagedError, match="is not a regular file")
