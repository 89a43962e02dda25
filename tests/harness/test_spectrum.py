"""Spectra: singular values of known matrices, and the command on runs that keep their weights."""

import json
import math
from datetime import UTC, datetime

import pytest
import torch

import zoo
from harness import weights
from harness.layer_inputs import Inputs
from harness.plan import restore
from harness.records.spectrum import SpectrumRecord
from harness.records.store import SpectrumStore
from harness.runner import run
from harness.spectrum import Values, _summary, _values, explained_variance, ranks_up_to, spectra
from harness.train import Trainer
from zoo.registry import UserError

ARGUMENTS = ["--budget", "smoke", "--precision", "fp32"]
for option in ("min_len=2", "max_len=24", "train=64", "dev=16", "test=18"):
    ARGUMENTS += ["--set", f"listops.{option}"]


def test_the_spectrum_of_a_matrix_with_known_singular_values():
    left, right = (torch.linalg.qr(torch.randn(6, 6).double())[0] for _ in range(2))
    values = torch.tensor([4.0, 2.0, 2.0, 1.0, 0.0, 0.0]).double()
    explained, effective = explained_variance(left @ values.diag() @ right, [1, 3, 4, 9])
    assert explained.tolist() == pytest.approx([16 / 25, 24 / 25, 1.0, 1.0])
    shares = [4 / 9, 2 / 9, 2 / 9, 1 / 9]
    assert effective.item() == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)))


def test_a_matrix_of_zeros_is_explained_by_any_direction():
    explained, effective = explained_variance(torch.zeros(3, 3), [1, 2])
    assert explained.tolist() == [1.0, 1.0] and effective.item() == 1.0


@pytest.mark.parametrize("limit", [1, 31, 32, 33, 1024])
def test_ranks_rise_to_the_length_of_the_task(limit):
    ranks = ranks_up_to(limit)
    assert ranks[-1] == limit and ranks == sorted({*ranks})
    assert ranks[:32] == [*range(1, min(limit, 32) + 1)]


def test_padding_does_not_change_a_spectrum_and_only_dev_is_read(
    plan, store, callback, unmeasured, monkeypatch
):
    tight = plan("softmax", steps=2, evaluations=1)
    wide = restore(tight.spec)
    run(tight, store, callback, keep=True)
    files = weights.find(store.weights(tight.spec))
    dev = wide.data.splits["dev"]
    assert int(dev.example_lengths().min()) < dev.sequences.shape[1]
    monkeypatch.setitem(wide.data.splits, "test", None)
    padded = spectra(wide, files, 3).moments[-1].layers
    assert padded[0] != padded[1]
    # Other tokens at the padded positions.
    filled = torch.arange(dev.sequences.shape[1]) >= dev.lengths[:, None]
    dev.sequences[filled] = 3
    assert spectra(wide, files, 3).moments[-1].layers == padded
    dev.sequences[filled] = 0


def test_kept_weights_are_those_before_training_and_of_each_evaluation(
    plan, store, callback, unmeasured, prepare
):
    one = plan("linear", steps=4, evaluations=2)
    record = run(one, store, callback, keep=True)
    files = weights.find(store.weights(one.spec))
    assert [*files] == [0, 2, 4]
    trainer = prepare(one)
    for step in range(5):
        if step in files:
            kept = torch.load(files[step], weights_only=True)
            assert all(torch.equal(kept[name], value)
                       for name, value in trainer.model.state_dict().items())  # fmt: skip
        trainer.step(step)
    store.path(one.spec).unlink()
    again = run(one, store, callback)
    assert [point.loss for point in again.curve] == [point.loss for point in record.curve]


def test_a_continued_run_keeps_the_weights_of_an_uninterrupted_one(
    plan, store, tmp_path, callback, unmeasured, monkeypatch
):
    one, step = plan("linear", steps=4, evaluations=2), Trainer.step
    elsewhere = type(store)(tmp_path / "elsewhere")
    run(one, elsewhere, callback, keep=True)

    def interrupted(self, number):
        if number == 3:
            raise KeyboardInterrupt
        return step(self, number)

    monkeypatch.setattr(Trainer, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(one, store, callback, keep=True)
    monkeypatch.setattr(Trainer, "step", step)
    run(one, store, callback, keep=True)
    contents = [
        [(number, path.read_bytes()) for number, path in weights.find(s.weights(one.spec)).items()]
        for s in (store, elsewhere)
    ]
    assert contents[0] == contents[1] and [number for number, _ in contents[0]] == [0, 2, 4]


def test_a_spectrum_is_the_mean_over_heads_and_its_deviation_is_that_of_examples():
    uniform, distinct = torch.full((4, 4), 0.25), torch.eye(4)
    layer = zoo.create("softmax", dim=4, heads=2, max_len=4)
    layer.matrix = lambda x, context, mask: torch.stack(
        [torch.stack([uniform, distinct]), torch.stack([uniform, uniform])]
    )
    one = _values(layer, Inputs(torch.zeros(2, 4, 4), None), [1, 2])
    assert one.explained.tolist() == pytest.approx([(3 + 1 / 4) / 4, (3 + 1 / 2) / 4])
    assert one.effective_rank.item() == pytest.approx((3 + 4) / 4)
    few, many = (Values(torch.tensor([x]), torch.tensor(y)) for x, y in ((0.2, 1.5), (0.6, 2.5)))
    both = _summary("softmax", [few, many])
    assert (both.explained, both.explained_deviation) == (
        pytest.approx((0.4,)),
        pytest.approx((0.2,)),
    )
    assert (both.effective_rank, both.effective_rank_deviation) == pytest.approx((2.0, 0.5))


@pytest.mark.slow
def test_the_command_writes_a_record_a_table_and_a_figure_once(call, store, unmeasured):
    names = ["softmax", "none"]
    code, _, _ = call("run", "-a", ",".join(names), *ARGUMENTS, "--keep-checkpoints")
    assert code == 0
    code, out, err = call("study", "spectrum", "--samples", "2")
    assert code == 0 and "step 0 of" in err
    assert {path.name for path in store.folder.glob("spectrum.*")} == {
        f"spectrum.{kind}" for kind in ("md", "csv", "png", "svg")
    }
    page = (store.folder / "spectrum.md").read_text("utf-8")
    assert "| softmax, layer 2 |" in page and "none has no attention matrix" in page
    records, broken = SpectrumStore.within(store.folder).read()
    assert (len(records), broken) == (2, [])
    started = datetime.fromisoformat(records[0].started)
    assert started <= datetime.now(UTC)
    # The run was repeated after its spectrum was computed.
    later = records[1].model_copy(update={"started": "2000-01-01T00:00:00+00:00"})
    SpectrumStore.within(store.folder).write(later)
    (name,) = [path.name for path in store.folder.glob("listops-softmax-*.json")]
    code, out, err = call("study", "spectrum", name, "--samples", "2", "--json")
    assert code == 0 and f"{name[:-5]}: step 0 of" in err
    code, out, err = call("study", "spectrum", name, "--samples", "2", "--json")
    assert code == 0 and "step 0" not in err
    (row,) = json.loads(out)["rows"]
    assert SpectrumRecord.model_validate(row).samples == 2


def test_what_has_no_kept_weights_is_rejected_in_one_line(call, store, unmeasured):
    call("run", "-a", "none", *ARGUMENTS)
    code, _, err = call("study", "spectrum")
    assert code == 2 and "has saved weights; make them with" in err
    (name,) = [path.name for path in store.folder.glob("*.json")]
    code, _, err = call("study", "spectrum", name)
    assert code == 2 and f"run '{name[:-5]}' has no saved weights" in err
    code, _, err = call("study", "spectrum", "listops")
    assert code == 2 and "unknown run 'listops'" in err and err.count("\n") == 1


def test_weights_of_another_model_are_an_error(tmp_path):
    file = weights.save(tmp_path, 0, torch.nn.Linear(2, 2, bias=False))
    with pytest.raises(UserError, match="does not hold the weights of this run"):
        weights.load(file, torch.nn.Linear(2, 2))


@pytest.mark.parametrize("content", [b"", b"no weights", None])
def test_a_damaged_file_of_weights_is_an_error(plan, store, callback, unmeasured, content):
    one = plan("none", steps=2, evaluations=1)
    run(one, store, callback, keep=True)
    files = weights.find(store.weights(one.spec))
    whole = files[2].read_bytes()
    # In the data of a tensor: PyTorch alone would load it.
    flipped = bytes(byte ^ (at == len(whole) // 2) for at, byte in enumerate(whole))
    files[2].write_bytes(flipped if content is None else content)
    with pytest.raises(UserError, match=r"is damaged: .*; make them again with: harness run"):
        spectra(restore(one.spec), files, 2)
