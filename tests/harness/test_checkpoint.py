"""The state of an unfinished run on disk."""

import hashlib
import io
import json
import os
import pickle
import random
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from harness import checkpoint
from harness.environment import describe
from harness.records.outcome import Point
from harness.train import Progress, fit
from zoo.registry import UserError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "one.checkpoint"


@pytest.fixture
def dev(plan):
    return plan().data.splits["dev"]


HERE = describe("cpu")


def nothing(*_) -> None:
    pass


def finish(trainer, dev, progress) -> list:
    """Train to the end; return the losses and the parameters."""
    fit(trainer, dev, progress, nothing, nothing)
    losses = [(point.step, point.loss, point.losses, point.dev) for point in progress.curve]
    best = list(progress.best_state.values())
    return [losses, progress.best_step, best, list(trainer.model.state_dict().values())]


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize(
    "attention", ["softmax+primal", pytest.param("performer", marks=pytest.mark.slow)]
)
def test_a_run_that_continues_from_a_checkpoint_equals_one_without_a_break(
    plan, prepare, dev, path, attention
):
    one = plan(attention, steps=8, warmup=2, evaluations=4)
    uninterrupted, progress = prepare(one), Progress(environment=HERE)

    def save_once():
        if progress.step == 4:
            checkpoint.save(path, uninterrupted, progress)

    fit(uninterrupted, dev, progress, nothing, save_once)
    expected = finish(uninterrupted, dev, progress)

    resumed = prepare(one)
    torch.manual_seed(99)
    with torch.no_grad():
        for parameter in resumed.model.parameters():
            parameter.fill_(1.0)
    loaded = checkpoint.load(path, resumed)
    assert loaded.step == 4
    assert [point.step for point in loaded.curve] == [1, 2, 3, 4]
    assert loaded.seconds == loaded.curve[-1].seconds
    assert same(finish(resumed, dev, loaded), expected)


def test_saving_does_not_change_the_run(plan, prepare, dev, path):
    runs = []
    for save in (False, True):
        trainer, progress = prepare(plan("primal")), Progress(environment=HERE)

        def keep(trainer=trainer, progress=progress, save=save):
            if save:
                checkpoint.save(path, trainer, progress)

        fit(trainer, dev, progress, nothing, keep)
        runs.append(finish(trainer, dev, progress))
    assert same(*runs)


@pytest.fixture
def saved(plan, prepare, dev, path):
    trainer, progress = prepare(plan()), Progress(environment=HERE)
    fit(trainer, dev, progress, nothing, nothing)
    checkpoint.save(path, trainer, progress)
    return path


def test_saving_leaves_no_other_file(saved):
    assert list(saved.parent.iterdir()) == [saved]


def test_a_failed_save_leaves_the_last_one(plan, prepare, saved, monkeypatch):
    def fail(state, file):
        file.write(b"half")
        raise OSError("disk full")

    before = saved.read_bytes()
    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(saved, prepare(plan()), Progress(environment=HERE))
    assert list(saved.parent.iterdir()) == [saved]
    assert saved.read_bytes() == before


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def sealed(content: bytes) -> bytes:
    """A file with any content, whose SHA-256 is right."""
    return content + f"sha256 {hashlib.sha256(content).hexdigest()}\n".encode()


def archive(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["plain", "zip"])
def test_a_checkpoint_is_never_executed(plan, prepare, path, tmp_path, form):
    touched = tmp_path / "touched"
    path.parent.mkdir()
    state = {"model": Touch(touched)}
    content = pickle.dumps(state, protocol=2) if form == "plain" else archive(state)
    path.write_bytes(sealed(content))
    with pytest.raises(UserError, match="does not hold tensors by name") as caught:
        checkpoint.load(path, prepare(plan()))
    assert not touched.exists()
    assert str(path) in str(caught.value)
    # Loading it by pickle executes it.
    if form == "plain":
        pickle.loads(content)
    else:
        torch.load(io.BytesIO(content), weights_only=False)
    assert touched.exists()


def damaged(content: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "almost complete": content[:-1],
        "longer": content + b"\0",
        "noise": random.Random(0).randbytes(1000),
        "a number cut off": b"\x80\x02J\x00",
        "text": b"not a checkpoint",
        "the digest alone": content[-checkpoint.TRAILER :],
        "no digest": content[: -checkpoint.TRAILER],
    }


@pytest.mark.parametrize("wrong", damaged(b""))
def test_a_damaged_checkpoint_is_rejected_and_left(plan, prepare, saved, wrong):
    content = damaged(saved.read_bytes())[wrong]
    saved.write_bytes(content)
    with pytest.raises(checkpoint.DamagedError, match=r"is damaged: .* SHA-256") as caught:
        checkpoint.load(saved, prepare(plan()))
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert saved.read_bytes() == content


def continued_after_flips(plan, prepare, saved: Path, flips: int, seed: int) -> int:
    """How often a checkpoint with one wrong bit is continued, of `flips` random bits."""
    content, positions, trainer = saved.read_bytes(), random.Random(seed), prepare(plan())
    continued = 0
    for _ in range(flips):
        flipped, position = bytearray(content), positions.randrange(8 * len(content))
        flipped[position // 8] ^= 1 << position % 8
        saved.write_bytes(flipped)
        with suppress(checkpoint.DamagedError):
            checkpoint.load(saved, trainer)
            continued += 1
    return continued


@pytest.mark.parametrize("flips", [50, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_checkpoint_with_a_flipped_bit_is_continued(plan, prepare, saved, flips):
    assert continued_after_flips(plan, prepare, saved, flips, seed=flips) == 0


@pytest.mark.parametrize("state", [[1, 2], {}, {"model": 3}, torch.zeros(2)], ids=repr)
def test_a_file_of_tensors_that_is_not_a_checkpoint_is_rejected(plan, prepare, path, state):
    path.parent.mkdir()
    path.write_bytes(sealed(archive(state)))
    with pytest.raises(UserError, match="is not a checkpoint of this run"):
        checkpoint.load(path, prepare(plan()))


def test_a_checkpoint_of_another_model_is_rejected(plan, prepare, saved):
    with pytest.raises(UserError, match="is not a checkpoint of this run"):
        checkpoint.load(saved, prepare(plan("primal")))


def test_the_message_says_which_part_of_a_checkpoint_is_wrong(plan, prepare, saved):
    state = checkpoint.read(saved)
    name = next(iter(state["model"]))
    wrongs = {
        "it has no model, random": {k: v for k, v in state.items() if k not in ("model", "random")},
        "its weights have other names": {**state, "model": {name: state["model"][name]}},
        "its weights have other names or shapes": {
            **state, "model": {**state["model"], name: torch.zeros(3, 5, 7)}
        },
        "its state of the optimiser": {**state, "optimizer": {}},
        "its progress": {**state, "progress": "[]"},
    }  # fmt: skip
    for what, content in wrongs.items():
        checkpoint.write(saved, content, "checkpoint")
        with pytest.raises(UserError) as caught:
            checkpoint.load(saved, prepare(plan()))
        assert str(caught.value).startswith(f"{saved} is not a checkpoint of this run: {what}")


def test_a_checkpoint_between_two_points_of_the_curve_continues_equally(plan, prepare, dev, path):
    one = plan("softmax+primal", steps=200, evaluations=2)

    def late() -> Progress:
        """The progress of a run near its end, whose curve has a point at every other step."""
        before = Point(step=190, seconds=0.1, loss=1, losses={})
        return Progress(environment=HERE, step=190, curve=[before])

    uninterrupted = finish(prepare(one), dev, late())

    class Stop(Exception):
        pass

    trainer, progress = prepare(one), late()

    def save():
        checkpoint.save(path, trainer, progress)
        raise Stop

    with pytest.raises(Stop):
        fit(trainer, dev, progress, nothing, save, lambda: progress.step == 195)
    resumed = prepare(one)
    torch.manual_seed(99)
    loaded = checkpoint.load(path, resumed)
    assert (loaded.step, loaded.curve[-1].step, loaded.best) == (195, 194, None)
    assert same(finish(resumed, dev, loaded), uninterrupted)


IMPOSSIBLE = {
    "a negative step": {"step": -1},
    "a step behind the last": {"step": 5},
    "a step before the curve's": {"step": 3},
    "no time": {"seconds": -1.0},
    "a score that is text": {"best": "high"},
    "a best step that is not reached": {"best_step": 5},
    "fractional step": {"step": 2.5},
    "endless time": {"elapsed": 1e308},
    "no environment": {"environment": 3},
    "text": {"curve": "all"},
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_figures_are_rejected_in_one_line(plan, prepare, saved, what):
    state = checkpoint.read(saved)
    progress = json.loads(state["progress"]) | IMPOSSIBLE[what]
    checkpoint.write(saved, {**state, "progress": json.dumps(progress)}, "checkpoint")
    with pytest.raises(UserError, match="is not a checkpoint of this run") as caught:
        checkpoint.load(saved, prepare(plan()))
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_another_number_of_steps_is_rejected(plan, prepare, saved):
    with pytest.raises(UserError, match="is not a checkpoint of this run"):
        checkpoint.load(saved, prepare(plan(steps=100)))


@pytest.mark.parametrize("part", ["best_state", "model", "optimizer", "random", "sums"])
def test_a_checkpoint_without_a_part_is_rejected(plan, prepare, saved, part):
    state = checkpoint.read(saved)
    emptied = {part: {}} if part in ("best_state", "model") else {}
    others = {name: value for name, value in state.items() if name != part}
    checkpoint.write(saved, others | emptied, "checkpoint")
    with pytest.raises(UserError, match="is not a checkpoint of this run"):
        checkpoint.load(saved, prepare(plan()))


@pytest.mark.timeout(300)
def test_a_fifo_is_not_waited_for(plan, prepare, path):
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(checkpoint.DamagedError, match="is not a regular file"):
        checkpoint.load(path, prepare(plan()))
