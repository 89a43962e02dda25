"""A run becomes a record, however it ends."""

import json
import signal
from contextlib import suppress

import pytest
import torch
from pydantic import field_serializer

import harness.environment
import harness.runner
from harness import checkpoint
from harness.data import restore
from harness.environment import expected_failures_of
from harness.interrupts import Interrupts, Terminated
from harness.records.fields import Frozen
from harness.records.store import Store
from harness.train import DivergedError, Evaluation, Trainer
from tests.harness.conftest import requested
from tests.harness.specs import raising
from zoo.registry import UserError
from zoo.variants import variants

pytestmark = pytest.mark.usefixtures("interruptible")

NO_MEMORY = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")
ENDS = [
    (torch.OutOfMemoryError("CUDA\nout"), "out_of_memory", "OutOfMemoryError: CUDA"),
    (NO_MEMORY, "out_of_memory", f"RuntimeError: {NO_MEMORY}"),
    (RuntimeError("boom\nand more"), "failed", "RuntimeError: boom"),
    (DivergedError("loss is nan"), "diverged", "loss is nan"),
    (SystemExit(0), "failed", "SystemExit: 0"),
    (UserError("x=3 is wrong; lower x"), "failed", "x=3 is wrong; lower x"),
]


def curve(record) -> list:
    return [(point.step, point.loss, point.losses, point.dev) for point in record.curve]


def outcome(record) -> tuple:
    final = record.final
    return curve(record), final.score, final.dev, final.best_step


def files(store) -> list[str]:
    return sorted(path.name for path in store.folder.glob("*")) if store.folder.exists() else []


def test_a_finished_run_is_a_complete_record(tiny, store, run_here, reported):
    spec = tiny("primal", steps=4, evaluations=2)
    record = run_here(spec)
    final, curve = record.final, record.curve
    assert (record.status, record.reason, record.spec) == ("ok", "", spec)
    assert store.read() == ([record], []) and files(store) == [store.path(spec).name]
    assert [point.step for point in curve] == [1, 2, 3, 4] and final.test_examples == 18
    assert final.dev == max(point.dev or 0 for point in curve)
    assert 0 < final.train_seconds == curve[-1].seconds < final.seconds
    written = json.loads(store.path(spec).read_text())
    assert "baselines" not in written and written["schema_version"] == 5
    assert record.parameters > record.flops / 10**6 > 1
    assert record.environment.versions["torch"] == torch.__version__
    assert reported["phase"] == ["load data", "train", "test"]


def test_a_record_has_the_expected_failures_of_the_form_that_ran(tiny, run_here, monkeypatch):
    declared = {"lengths": "of both forms", "gradients, causal": "of one"}
    monkeypatch.setattr(variants.find("softmax"), "expected_failures", declared)
    both, causal = {"softmax: lengths": "of both forms"}, requested("softmax", "induction")
    assert run_here(tiny()).expected_failures == both
    found = expected_failures_of(causal, restore(causal).task)
    assert found == {**both, "softmax: gradients": "of one"}


def test_processor_seconds_are_of_data_training_and_evaluation_in_all_processes(
    tiny, run_here, interrupted, monkeypatch
):
    clock = iter(range(1, 10_000))
    monkeypatch.setattr("harness.train.processor_seconds", lambda: float(next(clock)))
    found = run_here(interrupted(tiny(steps=4, evaluations=2))).processor
    # Each process reads data twice; 4 points of training are each evaluated; the test.
    assert (found.data, found.training, found.evaluation) == (4.0, 4.0, 5.0)


@pytest.mark.parametrize("best", [False, True])
def test_test_is_evaluated_with_the_best_state_and_earlier_only_where_the_recipe_asks_for_it(
    tiny, run_here, monkeypatch, best
):
    real, evaluations = Trainer.evaluate, []
    on_dev = iter([0.5, 0.25, 0.125, 0.0])

    def spy(self, split):
        evaluations.append((len(split), self.model.token.weight.sum().item()))
        if len(split) != 16:
            return real(self, split)
        return Evaluation(torch.arange(16) < 16 * next(on_dev), 16, split.answers.metric)

    monkeypatch.setattr(Trainer, "evaluate", spy)
    final = run_here(tiny(steps=4, evaluations=4, best_on_test=best)).final
    assert [size for size, _ in evaluations] == [16, *[18] * best] * 4 + [18]
    first, last, tested = (evaluations[i][1] for i in (0, -2, -1))
    assert first == tested != last and (final.best_step, final.dev) == (1, 50.0)
    assert final.best_on_test >= final.score if best else final.best_on_test is None


def test_a_seed_determines_parameters_order_of_data_and_result(tiny, run_here, recorded):
    starts = recorded(harness.runner, "fit", lambda trainer, *_: (
        trainer.model.token.weight.clone(), trainer.order.batch(0)
    ))  # fmt: skip
    first, again, other = (
        torch.manual_seed(before) and run_here(tiny("primal", seed=seed))
        for before, seed in ((1, 3), (2, 3), (3, 4))
    )
    assert outcome(again) == outcome(first) and curve(other) != curve(first)
    assert not any(map(torch.equal, starts[0], starts[2]))


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("error", "status", "reason"), ENDS, ids=lambda value: repr(value)[:30])
def test_each_error_is_a_record(
    tiny, store, run_here, reported, interrupt_at, error, status, reason
):
    interrupt_at(3, error)
    record = run_here(tiny())
    assert (record.status, record.reason, record.final) == (status, reason, None)
    assert [point.step for point in record.curve] == [1, 2, 3] and store.read() == ([record], [])
    # After a final status the run is not continued, so its checkpoint is deleted.
    assert store.checkpoint(record.spec).exists() == (status == "failed")
    # The traceback of an unexpected error is shown.
    unexpected = status == "failed" and not isinstance(error, UserError)
    assert [reason in trace for trace in reported["trace"]] == [True] * unexpected


@pytest.mark.parametrize(("phase", "steps", "error", "status", "reason"), [
    ("counts_of", 0, RuntimeError("boom"), "failed", "RuntimeError: boom"),
    ("build_model", 0, KeyboardInterrupt(), "interrupted", "interrupted at step 0"),
    ("Attempt._evaluate", 4, KeyboardInterrupt(), "interrupted", "interrupted at step 4"),
])  # fmt: skip
def test_a_run_that_ends_before_or_after_training_is_a_record_too(
    tiny, store, run_here, monkeypatch, phase, steps, error, status, reason
):
    with monkeypatch.context() as failing, suppress(KeyboardInterrupt):
        failing.setattr(f"harness.runner.{phase}", raising(error))
        run_here(tiny())
    record = store.find(tiny())
    assert (record.status, record.reason, len(record.curve)) == (status, reason, steps)
    assert record.final is None and run_here(tiny()).status == "ok"


def test_a_continued_run_names_both_commits_and_has_the_seconds_of_all_its_processes(
    tiny, store, run_here, interrupted, environment_is, monkeypatch
):
    environment_is(commit="aaa")
    saved = checkpoint.read(store.checkpoint(interrupted(tiny())))
    assert json.loads(saved["progress"])["elapsed"] > 0
    environment_is(commit="bbb")
    real, later = checkpoint.load, {"elapsed": 1000.0}
    monkeypatch.setattr(checkpoint, "load", lambda *of: real(*of).model_copy(update=later))
    record = run_here(tiny())
    assert record.environment.commit == "aaa, bbb" and 1000.0 < record.final.seconds < 2000.0


def test_a_run_of_softmax_has_sdpa_unless_it_names_a_backend(tiny, run_here, recorded):
    built = recorded(harness.runner, "build_model", lambda spec, _: spec.options["softmax"])
    named = tiny("softmax+primal", settings={"softmax": {"backend": "naive"}})
    assert run_here(named).backend == "naive+folded"
    record = run_here(tiny("softmax+primal"))
    assert record.backend == "sdpa+folded" and record.spec == tiny("softmax+primal")
    assert [options["backend"] for options in built] == ["naive", "sdpa"]


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_an_interrupted_run_is_recorded_and_continues_to_the_same_result(
    tiny, store, run_here, tmp_path, monkeypatch, recorded, number
):
    saves = recorded(checkpoint, "save", lambda path, trainer, progress: progress.step)
    trained = recorded(harness.runner, "fit", lambda trainer, *_: trainer.model)
    spec = tiny("softmax+primal", steps=12, evaluations=3)
    uninterrupted = run_here(spec, Store(tmp_path / "elsewhere"))
    real, left = Trainer.step, [number]

    def step(self, at):
        if at == 6 and left:
            if (sent := left.pop()) is None:
                raise KeyboardInterrupt
            signal.raise_signal(sent)
        return real(self, at)

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(Terminated if number else KeyboardInterrupt):
        run_here(spec)
    # A step during which a signal comes is completed and saved; an error loses two steps.
    done = 7 if number else 6
    record = store.find(spec)
    assert (record.status, record.reason) == ("interrupted", f"interrupted at step {done}")
    assert saves == [4, 8, 12, 4, *[7] * bool(number)]
    assert curve(record) == curve(uninterrupted)[:done]
    assert files(store) == sorted([store.checkpoint(spec).name, store.path(spec).name])
    assert outcome(run_here(spec)) == outcome(uninterrupted)
    assert files(store) == [store.path(spec).name]
    expected, _, weights = (model.state_dict() for model in trained)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_damaged_checkpoint_starts_the_run_again(tiny, store, run_here, interrupted, tmp_path):
    saved = store.checkpoint(interrupted(tiny()))
    content = bytearray(saved.read_bytes())
    content[len(content) // 2] ^= 1
    saved.write_bytes(content)
    with pytest.warns(UserWarning, match="is damaged: .*; the run starts again") as caught:
        record = run_here(tiny())
    assert str(saved) in str(caught[0].message)
    assert outcome(record) == outcome(run_here(tiny(), Store(tmp_path / "elsewhere")))
    assert files(store) == [store.path(record.spec).name]


def test_a_checkpoint_is_written_after_the_interval(tiny, run_here, recorded):
    saves, seconds = recorded(checkpoint, "save", lambda *of: of[2].step), iter(range(1000))
    # The clock is read once per step, and once per checkpoint.
    run_here(tiny(steps=8, evaluations=1), save_every=5.0, clock=lambda: next(seconds))
    assert saves == [5, 8]


def test_the_first_signal_is_deferred_and_the_second_one_is_not():
    with Interrupts() as interrupts:
        interrupts.deferred = True
        signal.raise_signal(signal.SIGTERM)
        assert isinstance(interrupts.pending, Terminated)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


class Sender(Frozen):
    name: str = "sender"

    @field_serializer("name")
    def _signal(self, name: str) -> str:
        signal.raise_signal(signal.SIGTERM)
        return name


def test_a_signal_while_pydantic_writes_a_model_is_raised_after_it():
    written = None
    with pytest.raises(Terminated), Interrupts():
        written = Sender().model_dump_json()
    assert written == "{}"


def test_a_signal_while_a_record_is_written_is_raised_after_it(tiny, store, run_here, recorded):
    recorded(type(store), "write", lambda *_: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_here(tiny())
    assert store.find(tiny()).status == "ok"
