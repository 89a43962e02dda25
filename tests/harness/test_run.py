"""One cell: every way that a run can end is a record."""

from dataclasses import replace

import pytest
import torch

import harness.run
from harness import budgets, checkpoint
from harness.data import find_task
from harness.environment import describe
from harness.records.spec import TaskSpec
from harness.run import expected_failures_of, run
from harness.train import Trainer
from tasks.registry import tasks
from tests.harness.conftest import TREES
from zoo.registry import UserError
from zoo.variants import variants

REFUSED_BY_CPU = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes")
ENDS = [
    (MemoryError("no"), "out_of_memory", "MemoryError: no"),
    (torch.OutOfMemoryError("CUDA\nout"), "out_of_memory", "OutOfMemoryError: CUDA"),
    (REFUSED_BY_CPU, "out_of_memory", f"RuntimeError: {REFUSED_BY_CPU}"),
    (RuntimeError("boom\nand more"), "failed", "RuntimeError: boom"),
    (ArithmeticError(), "failed", "ArithmeticError: "),
    (ZeroDivisionError("x"), "failed", "ZeroDivisionError: x"),
]


def curve(record) -> list:
    """What a curve holds but for its times."""
    return [(point.step, point.loss, point.losses, point.dev_accuracy) for point in record.curve]


def outcome(record) -> tuple:
    final = record.final
    return curve(record), final.test_accuracy, final.dev_accuracy, final.best_step


def files(store) -> list[str]:
    return sorted(path.name for path in store.folder.glob("*")) if store.folder.exists() else []


def raising(error: BaseException):
    def fail(*_, **__):
        raise error

    return fail


@pytest.fixture
def trained(monkeypatch) -> list[Trainer]:
    """The trainers that runs have used."""
    seen, real = [], harness.run.fit

    def spy(trainer, *rest, **named):
        seen.append(trainer)
        real(trainer, *rest, **named)

    monkeypatch.setattr("harness.run.fit", spy)
    return seen


def test_a_finished_run_is_a_whole_record(plan, store, quiet):
    spec = plan("softmax+primal", steps=4, evaluations=2)
    record = run(spec, store, quiet)
    assert (record.status, record.reason, record.spec) == ("ok", "", spec)
    assert store.read() == ([record], [])
    assert files(store) == [store.path(spec).name]
    assert [point.step for point in record.curve] == [1, 2, 3, 4]
    assert record.final.test_examples == 18
    assert record.final.dev_accuracy == max(p.dev_accuracy or 0 for p in record.curve)
    assert 0 < record.final.train_seconds == record.curve[-1].seconds < record.final.seconds
    assert {"chance", "majority", "bag of tokens"} < record.baselines.keys()
    assert record.baselines["chance"] == 0.1
    assert record.cost.own.parameters != record.cost.softmax.parameters
    assert record.environment.versions["torch"] == torch.__version__
    assert quiet.phases == ["load data", "measure cost", "train", "test"]


def test_an_example_with_several_answers_counts_once(request_of, store, quiet, unmeasured):
    sizes = {"train": 32, "dev": 4, "test": 6}
    spec = budgets.plan(request_of("none", "mqar", mqar=sizes))
    assert find_task(spec).load("test").targets.shape == (6, 2)
    assert run(spec, store, quiet).final.test_examples == 6


def test_the_floors_of_a_record_are_those_of_the_shuffled_task(
    request_of, store, quiet, unmeasured, monkeypatch
):
    monkeypatch.setattr("harness.run.floors", lambda task: {task.key: 0.5})
    spec = budgets.plan(request_of("none", "listops", block=4, listops=TREES))
    assert spec.task.key.endswith("shuffled")
    assert run(spec, store, quiet).baselines == {spec.task.key: 0.5}


def test_a_record_names_the_gaps_of_the_form_that_ran(plan, monkeypatch):
    expected_failures = {"lengths": "of both forms", "gradients, causal": "of one"}
    monkeypatch.setattr(variants.find("softmax"), "expected_failures", expected_failures)
    usual, task = plan(), tasks.find("induction")()
    causal = usual.model_copy(
        update={"task": TaskSpec(name="induction", key=task.key, options=dict(task.options))}
    )
    assert expected_failures_of(usual) == {"softmax: lengths": "of both forms"}
    assert expected_failures_of(causal) == expected_failures_of(usual) | {
        "softmax: gradients": "of one"
    }


def test_test_is_read_once_behind_training_with_the_best_state(
    plan, store, quiet, unmeasured, monkeypatch
):
    real, seen = Trainer.accuracy, []
    told = {16: iter([0.5, 0.25, 0.125, 0.0])}

    def spy(self, split):
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        seen.append((len(split), state))
        return next(told[16]) if len(split) == 16 else real(self, split)

    monkeypatch.setattr(Trainer, "accuracy", spy)
    record = run(plan(steps=4, evaluations=4), store, quiet)
    assert [size for size, _ in seen] == [16, 16, 16, 16, 18]
    first, last, tested = seen[0][1], seen[3][1], seen[4][1]
    assert all(torch.equal(first[name], tested[name]) for name in first)
    assert not all(torch.equal(last[name], tested[name]) for name in last)
    assert (record.final.best_step, record.final.dev_accuracy) == (1, 0.5)


@pytest.mark.parametrize("attention", ["softmax", "softmax+primal", "performer", "reformer"])
def test_measuring_changes_nothing_of_the_training(plan, store, quiet, monkeypatch, attention):
    spec = plan(attention)
    measured = run(spec, store, quiet)
    monkeypatch.setattr("harness.run.measure", lambda *_: None)
    unmeasured = run(spec, store, quiet)
    assert measured.cost
    assert not unmeasured.cost
    assert outcome(unmeasured) == outcome(measured)


def test_a_seed_repeats_its_run_to_the_bit_and_another_one_differs(plan, store, quiet, unmeasured):
    torch.manual_seed(1)
    first = run(plan("primal", seed=3), store, quiet)
    torch.manual_seed(2)
    assert outcome(run(plan("primal", seed=3), store, quiet)) == outcome(first)
    assert curve(run(plan("primal", seed=4), store, quiet)) != curve(first)


def test_a_seed_decides_the_initial_parameters_and_the_order_of_data(
    plan, store, quiet, unmeasured, monkeypatch
):
    begun = []

    def spy(trainer, *_, **__):
        begun.append((trainer.model.token.weight.clone(), trainer.order.batch(0)))
        raise RuntimeError("seen enough")

    monkeypatch.setattr("harness.run.fit", spy)
    for seed in (3, 3, 4):
        run(plan(seed=seed), store, quiet)
    for first, again, other in zip(*begun, strict=True):
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


@pytest.mark.parametrize(("error", "status", "reason"), ENDS, ids=lambda value: repr(value)[:30])
def test_every_other_end_is_a_record_with_its_reason(
    plan, store, quiet, unmeasured, interrupt_at, error, status, reason
):
    interrupt_at(3, error)
    record = run(plan(), store, quiet)
    assert (record.status, record.reason) == (status, reason)
    assert record.final is None
    assert record.cost == unmeasured
    assert [point.step for point in record.curve] == [1, 2, 3]
    assert store.read() == ([record], [])
    left = {path.name for path in store.folder.iterdir()}
    # What the same specification would come to again needs no state to go on from.
    kept = {store.checkpoint(record.spec).name} if status == "failed" else set()
    assert left == {store.path(record.spec).name} | kept


def test_the_environment_is_that_of_the_beginning_and_a_continued_run_names_both_commits(
    plan, store, quiet, unmeasured, interrupt_at, monkeypatch
):
    here = describe("cpu")
    monkeypatch.setattr("harness.run.describe", lambda kind: here.model_copy(update=commit("aaa")))
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(plan(), store, quiet)
    monkeypatch.setattr("harness.run.describe", lambda kind: here.model_copy(update=commit("bbb")))
    record = run(plan(), store, quiet)
    assert record.environment.commit == "aaa, bbb"


def test_a_run_takes_the_time_of_all_its_processes(
    plan, store, quiet, unmeasured, interrupt_at, monkeypatch
):
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(plan(), store, quiet)
    real = checkpoint.load

    def load(path, trainer):
        return replace(real(path, trainer), elapsed=1000.0)

    monkeypatch.setattr(checkpoint, "load", load)
    assert 1000.0 < run(plan(), store, quiet).final.seconds < 2000.0


def test_a_run_that_was_begun_elsewhere_is_not_gone_on_with(
    plan, store, quiet, unmeasured, interrupt_at, monkeypatch
):
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(plan(), store, quiet)
    here = describe("cpu")
    versions = here.versions | {"torch": "1.0", "a package more": "7"}
    other = here.model_copy(update={"threads": 99, "versions": versions})
    monkeypatch.setattr("harness.run.describe", lambda kind: other)
    with pytest.raises(UserError) as refused:
        run(plan(), store, quiet)
    assert str(refused.value) == (
        f"{store.checkpoint(plan())} was begun with threads {here.threads} (here 99), "
        f"torch {torch.__version__} (here 1.0); go on there, or delete it to start the run again"
    )
    assert store.checkpoint(plan()).exists()


def commit(name: str) -> dict[str, str]:
    return {"commit": name}


def test_the_traceback_of_a_failure_is_shown_and_that_of_a_known_end_is_not(
    plan, store, quiet, unmeasured, interrupt_at
):
    interrupt_at(0, MemoryError())
    run(plan(), store, quiet)
    assert not quiet.traces
    interrupt_at(0, RuntimeError("boom"))
    run(plan(), store, quiet)
    (trace,) = quiet.traces
    assert trace.startswith("Traceback") and trace.endswith("RuntimeError: boom\n")


def test_a_run_whose_loss_explodes_has_diverged(plan, store, quiet, unmeasured):
    record = run(plan(steps=40, warmup=1, lr=1e30), store, quiet)
    assert record.status == "diverged"
    assert "task loss is nan by step" in record.reason
    assert store.find(record.spec) == record


@pytest.mark.parametrize("phase", ["find_task", "measure"])
def test_a_failure_before_training_is_a_record_too(plan, store, quiet, monkeypatch, phase):
    monkeypatch.setattr(f"harness.run.{phase}", raising(RuntimeError("early")))
    record = run(plan(), store, quiet)
    assert (record.status, record.reason, record.cost) == ("failed", "RuntimeError: early", None)
    assert record.curve == []


def test_bad_input_writes_nothing(plan, store, quiet, unmeasured):
    with pytest.raises(UserError, match="batch=65 exceeds the 64 training examples"):
        run(plan(batch=65), store, quiet)
    assert files(store) == []


def test_a_task_of_another_version_is_refused(plan, store, quiet):
    spec = plan()
    task = spec.task.model_copy(update={"key": "listops@0"})
    with pytest.raises(UserError, match=r"'listops@0' is 'listops@1\[.*' by now"):
        run(spec.model_copy(update={"task": task}), store, quiet)


@pytest.mark.parametrize("attention", ["softmax+primal", "performer"])
def test_an_interrupted_run_is_recorded_and_goes_on_to_the_same_end(
    plan, store, tmp_path, quiet, unmeasured, interrupt_at, trained, attention
):
    spec = plan(attention, steps=12, evaluations=3)
    elsewhere = type(store)(tmp_path / "elsewhere")
    whole = run(spec, elsewhere, quiet)

    interrupt_at(6, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(spec, store, quiet)
    record = store.find(spec)
    assert (record.status, record.reason) == ("interrupted", "interrupted at step 6")
    assert curve(record) == curve(whole)[:6]
    assert files(store) == sorted([store.checkpoint(spec).name, store.path(spec).name])

    again = run(spec, store, quiet)
    assert again.status == "ok"
    assert outcome(again) == outcome(whole)
    assert files(store) == [store.path(spec).name]
    # Steps 4 and 5 were done twice, and are in the curve once.
    assert trained[2].schedule.last_epoch == trained[0].schedule.last_epoch == 12
    states = [one.model.state_dict() for one in (trained[0], trained[2])]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_an_interrupt_before_training_is_a_record(plan, store, quiet, monkeypatch):
    monkeypatch.setattr("harness.run.measure", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(plan(), store, quiet)
    assert store.find(plan()).reason == "interrupted at step 0"


def test_a_damaged_checkpoint_stops_the_run_and_stays(plan, store, quiet, unmeasured):
    saved = store.checkpoint(plan())
    saved.parent.mkdir()
    saved.write_bytes(b"noise")
    with pytest.raises(UserError, match="is not a checkpoint of this run"):
        run(plan(), store, quiet)
    assert files(store) == [saved.name]


def test_the_state_is_saved_at_every_evaluation(plan, store, quiet, unmeasured, monkeypatch):
    steps = []
    monkeypatch.setattr(checkpoint, "save", lambda path, trainer, one: steps.append(one.step))
    run(plan(steps=4, evaluations=2), store, quiet)
    assert steps == [2, 4]
