"""The state of an unfinished run on disk."""

import pickle
import random
from pathlib import Path

import pytest
import torch

from harness import checkpoint
from harness.train import Progress, fit
from zoo.registry import UserError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "one.checkpoint"


@pytest.fixture
def dev(plan):
    return plan().data.splits["dev"]


def nothing(*_) -> None:
    pass


def go_on(trainer, dev, progress) -> list:
    """Train to the end; the losses and the parameters that come of it."""
    fit(trainer, dev, progress, nothing, nothing)
    losses = [
        (point.step, point.loss, point.losses, point.dev_accuracy) for point in progress.curve
    ]
    best = list(progress.best_state.values())
    return [losses, progress.best_step, best, list(trainer.model.state_dict().values())]


def same(one, other) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("attention", ["softmax+primal", "performer", "reformer"])
def test_a_run_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(
    plan, prepare, dev, path, attention
):
    spec = plan(attention, steps=8, warmup=2, evaluations=4)
    whole, progress = prepare(spec), Progress()

    def save_once():
        if progress.step == 4:
            checkpoint.save(path, whole, progress)

    fit(whole, dev, progress, nothing, save_once)
    expected = go_on(whole, dev, progress)

    resumed = prepare(spec.model_copy(update={"seed": 0}))
    torch.manual_seed(99)
    with torch.no_grad():
        for parameter in resumed.model.parameters():
            parameter.fill_(1.0)
    loaded = checkpoint.load(path, resumed)
    assert loaded.step == 4
    assert [point.step for point in loaded.curve] == [1, 2, 3, 4]
    assert loaded.seconds == loaded.curve[-1].seconds
    assert same(go_on(resumed, dev, loaded), expected)


def test_saving_changes_nothing_of_the_run(plan, prepare, dev, path):
    runs = []
    for save in (False, True):
        trainer, progress = prepare(plan("primal")), Progress()

        def keep(trainer=trainer, progress=progress, save=save):
            if save:
                checkpoint.save(path, trainer, progress)

        fit(trainer, dev, progress, nothing, keep)
        runs.append(go_on(trainer, dev, progress))
    assert same(*runs)


@pytest.fixture
def saved(plan, prepare, dev, path):
    trainer, progress = prepare(plan()), Progress()
    fit(trainer, dev, progress, nothing, nothing)
    checkpoint.save(path, trainer, progress)
    return path


def test_a_saved_checkpoint_leaves_nothing_beside_it(saved):
    assert list(saved.parent.iterdir()) == [saved]


def test_a_failed_save_leaves_the_last_one(plan, prepare, saved, monkeypatch):
    def fail(state, file):
        file.write(b"half")
        raise OSError("disk full")

    before = saved.read_bytes()
    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(saved, prepare(plan()), Progress())
    assert list(saved.parent.iterdir()) == [saved]
    assert saved.read_bytes() == before


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("form", ["plain", "zip"])
def test_a_checkpoint_is_never_executed(plan, prepare, path, tmp_path, form):
    touched = tmp_path / "touched"
    path.parent.mkdir()
    if form == "plain":
        path.write_bytes(pickle.dumps({"model": Touch(touched)}, protocol=2))
    else:
        torch.save({"model": Touch(touched)}, path)
    with pytest.raises(UserError, match="is not a checkpoint of this run") as caught:
        checkpoint.load(path, prepare(plan()))
    assert not touched.exists()
    assert str(path) in str(caught.value)
    # It would have been, had anybody read it the usual way.
    pickle.loads(path.read_bytes()) if form == "plain" else torch.load(path, weights_only=False)
    assert touched.exists()


def spoilt(content: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "almost whole": content[:-1],
        "noise": random.Random(0).randbytes(1000),
        "a number cut off": b"\x80\x02J\x00",
        "text": b"not a checkpoint",
    }


WRONGS = ["empty", "truncated", "almost whole", "noise", "a number cut off", "text"]


@pytest.mark.parametrize("wrong", WRONGS)
def test_a_damaged_checkpoint_is_refused_and_left(plan, prepare, saved, wrong):
    content = spoilt(saved.read_bytes())[wrong]
    saved.write_bytes(content)
    with pytest.raises(UserError, match="delete it to start the run again") as caught:
        checkpoint.load(saved, prepare(plan()))
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert saved.read_bytes() == content


@pytest.mark.parametrize("state", [[1, 2], {}, {"model": 3}, torch.zeros(2)], ids=repr)
def test_a_file_of_tensors_that_is_no_checkpoint_is_refused(plan, prepare, path, state):
    path.parent.mkdir()
    torch.save(state, path)
    with pytest.raises(UserError, match="is not a checkpoint of this run"):
        checkpoint.load(path, prepare(plan()))


def test_a_checkpoint_of_another_model_is_refused(plan, prepare, saved):
    with pytest.raises(UserError, match="is not a checkpoint of this run"):
        checkpoint.load(saved, prepare(plan("primal")))
