"""Studies: the command, its records and pages, and the spectra of attention matrices."""

import json
import math
from dataclasses import dataclass

import pandas as pd
import pytest
import torch

import zoo
from harness import checkpoint, studies
from harness.data import restore
from harness.layer_inputs import Inputs, inputs_of_layers, scale_logits
from harness.model import build_model
from harness.records.results import StudyRecord, frame_of, table_of
from harness.records.store import StudyStore
from harness.studies import Section, Study, Table, spectrum
from harness.studies.spectrum import Spectrum, explained_variance, ranks_up_to, spectrum_of
from reports.store import write_study
from tests.harness.conftest import SMALL
from tests.harness.specs import axes_of
from tests.reports.conftest import make_record
from zoo.registry import UserError

KEPT = ["--budget", "smoke", "--precision", "fp32", "--keep-checkpoints", *SMALL]

OPTIONS = {
    "ksvd": ["--dim", "8", "--tokens", "8", "--rank", "2", "--steps", "2", "--seeds", "0,1",
             "--losses", "ksvd,task", "--traces", "data"],
    "spectrum": ["--samples", "2"],
}  # fmt: skip


@pytest.fixture
def trained(output, store) -> str:
    # A run with saved weights.
    output("run", "-a", "softmax+primal", "--no-cost", *KEPT)
    (path,) = store.folder.glob("*.json")
    return path.stem


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", studies.names())
def test_a_study_computes_once_and_writes_its_page_its_table_and_its_figure(
    output, store, request, monkeypatch, name
):
    if name == "spectrum":
        request.getfixturevalue("trained")
    argv, results = ("study", name, *OPTIONS.get(name, ())), StudyStore.within(store.folder)
    rows = json.loads(output(*argv, "--json"))["rows"]
    files = {path.name for path in store.folder.glob("[a-z]*.*") if path.suffix != ".json"}
    assert files == {f"{name}.{kind}" for kind in ("md", "csv", "png", "svg")}
    (record,), broken = results.read()
    assert [*rows[0]] == [*record.table] and not broken
    assert len(pd.read_csv(store.folder / f"{name}.csv")) == len(rows)

    def is_computed(*more: str) -> bool:
        before = results.path(record.spec).stat().st_mtime_ns
        output(*argv, *more)
        return results.path(record.spec).stat().st_mtime_ns > before

    assert not is_computed()
    assert name != "ksvd" or is_computed("--rerun")  # which takes the least time
    if name != "spectrum":  # which is of runs, and these are of the code of now
        other = {"primal": "0"}
        monkeypatch.setattr(f"harness.studies.{name}.majors_of", lambda names: other)
        assert is_computed()


@pytest.mark.slow
def test_the_studies_of_a_trained_model_are_of_its_layers(output, trained, store):
    out = output("study", "ksvd", "--run", trained, "--json")
    rows = pd.DataFrame(json.loads(out)["rows"])
    assert set(rows["inputs"]) == {"listops softmax+primal, layer 2"} and rows["step"].min() == 0
    # The run was repeated after its study.
    (record,) = [r for r in StudyStore.within(store.folder).read()[0] if r.spec.study == "ksvd"]
    old = record.model_copy(update={"started": "2000-01-01T00:00:00+00:00"})
    path = StudyStore.within(store.folder).write(old)
    output("study", "ksvd", "--run", trained)
    assert "2000-01-01" not in path.read_text("utf-8")


def test_other_options_replace_the_result_of_the_same_subject(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class Count(Study):
        name, head = "count", "# Count\n"
        number: int

        def tables(self, store):
            rows = [{"of": "all", "number": n, "mean": (n / 3)} for n in range(self.number)]
            return [Table("numbers", {"number": self.number}, lambda: rows)]

        @classmethod
        def sections(cls, frame):
            yield Section("a|b", frame.assign(range=[(1.0, 0.5, 2.0)] * len(frame)), "text <b>")

        @classmethod
        def panels(cls, frame):
            return ()

    for number in (2, 3):
        rows, _ = write_study(Count(number=number, store=tmp_path))
        assert len(rows) == number
    page = (tmp_path / "count.md").read_text("utf-8")
    assert page.startswith("# Count\n\n## a&#124;b\n\ntext &lt;b&gt;\n\n| of | number | mean |")
    assert page.endswith("| all | 2 | 0.667 | 1.00 [0.500, 2.00] |\n")
    assert len(StudyStore.within(tmp_path).read()[0]) == 1


def test_a_table_has_a_value_once_that_all_rows_have():
    rows = [{"a": "x", "b": 1, "c": None}, {"a": "x", "b": 2, "c": 0.5}]
    assert table_of(rows) == {"a": "x", "b": (1, 2), "c": (None, 0.5)}
    assert table_of(rows[:1]) == {"a": ("x",), "b": (1,), "c": (None,)}
    of = {"spec": {"study": "s", "subject": "t", "options": {}}, "environment": None,
          "started": "2026-11-25T00:00:00+00:00"}  # fmt: skip
    frame = frame_of([StudyRecord(table=table_of(rows), **of)] * 2)
    assert frame["a"].tolist() == ["x"] * 4
    for wrong in ({"a": (1, 2), "b": (1,)}, {"a": 1}):
        with pytest.raises(ValueError, match="no length, or several"):
            StudyRecord(table=wrong, **of)


def test_a_run_without_weights_or_with_a_damaged_record_is_rejected(rejected, store):
    path = store.write(make_record("none"))
    assert f"run '{path.stem}' has no saved weights" in rejected("study", "spectrum", path.name)
    folder = store.folder / "weights" / path.stem
    folder.mkdir(parents=True)
    (folder / "step-00000000.pt").touch()
    path.write_text("{}")
    assert "is not a record" in rejected("study", "spectrum", path.name)


def test_the_spectrum_of_a_matrix_with_known_singular_values():
    left, right = (torch.linalg.qr(torch.randn(6, 6).double())[0] for _ in range(2))
    values = torch.tensor([4.0, 2.0, 2.0, 1.0, 0.0, 0.0]).double()
    explained, effective = explained_variance(left @ values.diag() @ right, [1, 3, 4, 9])
    assert explained.tolist() == pytest.approx([16 / 25, 24 / 25, 1.0, 1.0])
    shares = [4 / 9, 2 / 9, 2 / 9, 1 / 9]
    assert effective.item() == pytest.approx(math.exp(-sum(p * math.log(p) for p in shares)))
    for limit in (1, 32, 33, 1024):
        ranks = ranks_up_to(limit)
        assert ranks[-1] == limit and ranks == sorted({*ranks})
        assert ranks[:32] == [*range(1, min(limit, 32) + 1)]
    # Any direction explains a matrix of zeros.
    explained, effective = explained_variance(torch.zeros(3, 3), [1, 2])
    assert explained.tolist() == [1.0, 1.0] and effective.item() == 1.0


def test_kept_weights_are_those_before_training_and_of_each_evaluation_of_a_continued_run(
    tiny, store, run_here, prepare, interrupted
):
    short = interrupted(tiny("linear", steps=4, evaluations=2), keep_checkpoints=True)
    record = run_here(short, keep_checkpoints=True)
    files = checkpoint.find_weights(store.weights(short))
    assert [*files] == [0, 2, 4]
    trainer = prepare(short)
    for step in range(5):
        if step in files:
            weights = torch.load(files[step], weights_only=True)
            assert all(torch.equal(weights[name], value)
                       for name, value in trainer.model.state_dict().items())  # fmt: skip
        trainer.step(step)
    store.path(short).unlink()
    assert [point.loss for point in run_here(short).curve] == [p.loss for p in record.curve]


def test_a_spectrum_is_the_mean_over_heads_with_its_deviation_over_examples():
    uniform, distinct = torch.full((4, 4), 0.25), torch.eye(4)
    layer = zoo.create("softmax", dim=4, heads=2, max_len=4)
    matrices = [[[uniform, distinct], [uniform, uniform]], [[uniform, uniform]] * 2]
    by_call = iter([torch.stack([*map(torch.stack, matrix)]) for matrix in matrices])
    layer.matrix = lambda x, context, mask: next(by_call)
    rows = spectrum_of(layer, [Inputs(torch.zeros(2, 4, 4), None)] * 2, [1, 2])
    found = pd.DataFrame(rows)
    first, second = (3 + 1 / 4) / 4, (3 + 1 / 2) / 4
    for name, expected in {
        "explained_variance": [(first + 1) / 2, (second + 1) / 2],
        "explained_variance_deviation": [(1 - first) / 2, (1 - second) / 2],
        "effective_rank": [((3 + 4) / 4 + 1) / 2] * 2, "effective_rank_deviation": [3 / 8] * 2,
    }.items():  # fmt: skip
        assert found[name].tolist() == pytest.approx(expected)


def test_the_figure_has_a_line_for_each_layer():
    rows = [
        {"setting": "a task", "attention": attention, "seed": seed, "layer": 1, "step": step,
         "variant": attention, "rank": rank, "explained_variance": share,
         "explained_variance_deviation": 0.1, "effective_rank": 1.5 + step,
         "effective_rank_deviation": 0.2, "reason": ""}
        for attention, seed in (("primal[rank=20]", 0), ("softmax", 1))
        for step in (0, 3) for rank, share in ((1, 0.5), (2, 0.9), (4, 1.0))
    ]  # fmt: skip
    explained, effective = map(axes_of, Spectrum.panels(pd.DataFrame(rows)))
    assert [*explained.lines[0].get_ydata()] == [0.5, 0.9, 1.0] and len(explained.collections) == 2
    assert [*effective.lines[0].get_xdata()] == [0, 3]
    assert [*effective.lines[0].get_ydata()] == [1.5, 4.5]


def test_a_damaged_file_of_weights_is_an_error(tiny, store, run_here):
    short = tiny("none", steps=2, evaluations=1)
    run_here(short, keep_checkpoints=True)
    files = checkpoint.find_weights(store.weights(short))
    whole = files[2].read_bytes()
    # In the data of a tensor: PyTorch alone would load it.
    files[2].write_bytes(bytes(byte ^ (at == len(whole) // 2) for at, byte in enumerate(whole)))
    with pytest.raises(UserError, match=r"is damaged: .*; make them again with: harness run"):
        [*spectrum.spectra(short, files, 2, "")]


def test_the_examples_of_dev_are_evenly_spaced(tiny, dev):
    model = build_model(tiny(), restore(tiny()).task).eval()
    for samples, expected in ((1, [0]), (3, [0, 7, 15]), (99, [*range(16)])):
        calls = inputs_of_layers(model, dev, samples)[0]
        lengths = [int(call.mask.sum()) for call in calls]
        assert lengths == [int(dev.example_lengths()[example].sum()) for example in expected]


def test_logits_have_the_deviation_that_is_requested():
    torch.manual_seed(0)
    layer, x = zoo.create("softmax", dim=8, heads=2, max_len=5), torch.randn(3, 5, 8)
    torch.nn.init.normal_(layer.query.bias)
    scale_logits(layer, x, 2.5)
    q, k = layer.query(x), layer.context(x)[..., :8]
    scores = torch.stack([q[..., i : i + 4] @ k[..., i : i + 4].mT / 2 for i in (0, 4)])
    assert scores.std().item() == pytest.approx(2.5, rel=1e-4)
