"""Many cells: what is done is not done again, and what fails stops nothing else."""

import pytest
import torch

import harness.run
from harness import budgets
from harness.grid import check, run_all
from harness.train import DivergedError
from tasks.lra.listops import ListOps
from tests.harness.conftest import TREES
from zoo.contract import Unsupported
from zoo.registry import UserError


def grid(specs, store, quiet, rerun=False) -> list[tuple[int, str, bool]]:
    found = run_all(specs, store, lambda spec: quiet, rerun=rerun)
    return [(record.spec.seed, record.status, new) for record, new in found]


def test_a_finished_cell_is_not_run_again_unless_asked(plan, store, quiet, unmeasured):
    specs = [plan(seed=0), plan(seed=1)]
    assert grid(specs[:1], store, quiet) == [(0, "ok", True)]
    assert grid(specs, store, quiet) == [(0, "ok", False), (1, "ok", True)]
    assert grid(specs, store, quiet, rerun=True) == [(0, "ok", True), (1, "ok", True)]


def test_a_failing_cell_does_not_stop_the_next_and_is_run_anew_later(
    plan, store, quiet, unmeasured, monkeypatch
):
    real = harness.run.fit

    def fail_for_seed_0(trainer, *rest, **named):
        if trainer.order._seed == 0:
            raise RuntimeError("boom")
        real(trainer, *rest, **named)

    specs = [plan(seed=0), plan(seed=1)]
    with monkeypatch.context() as failing:
        failing.setattr("harness.run.fit", fail_for_seed_0)
        assert grid(specs, store, quiet) == [(0, "failed", True), (1, "ok", True)]
    assert grid(specs, store, quiet) == [(0, "ok", True), (1, "ok", False)]


def test_an_interrupt_stops_the_grid(plan, store, quiet, unmeasured, interrupt_at):
    interrupt_at(0, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        grid([plan(seed=0), plan(seed=1)], store, quiet)
    assert [record.status for record in store.read()[0]] == ["interrupted"]


def test_a_broken_record_in_the_place_of_a_cell_is_refused(plan, store, quiet, unmeasured):
    path = store.path(plan())
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(UserError, match="is not a record"):
        grid([plan()], store, quiet)
    assert path.read_text() == "{"


def test_the_check_refuses_a_later_cell_before_the_first_and_draws_no_random_number(plan, store):
    state = torch.get_rng_state()
    check([plan(), plan("primal")], store, [].append)
    assert torch.equal(torch.get_rng_state(), state)
    model = plan().model.model_copy(update={"depth": 1})
    shallow = plan("softmax+primal").model_copy(update={"model": model})
    with pytest.raises(UserError, match="depth=1 has no room"):
        check([plan(), shallow], store, [].append)


def test_the_check_tells_of_data_that_it_generates_and_of_no_others(plan, request_of, store):
    told = []
    ours = [plan(name, settings={"listops": {**TREES, "seed": 7}}) for name in ("none", "primal")]
    drawn = budgets.plan(request_of("none", "majority"))
    check([*ours, drawn], store, told.append)
    assert told == [f"{ours[0].task.key}: generate data"]
    check(ours, store, told.append)
    assert len(told) == 1


def test_the_check_names_the_task_that_a_variant_cannot_do(request_of, store):
    with pytest.raises(Unsupported, match=r"^copying@1\S*: nystrom is not causal; "):
        check([budgets.plan(request_of("nystrom", "copying"))], store, [].append)


def test_the_check_finds_a_broken_record_of_a_later_cell(plan, store):
    path = store.path(plan("primal"))
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(UserError, match="is not a record"):
        check([plan(), plan("primal")], store, [].append)


def test_a_final_end_is_not_run_into_again(plan, store, quiet, unmeasured, interrupt_at):
    interrupt_at(0, DivergedError("task loss is nan by step 1"))
    assert grid([plan()], store, quiet) == [(0, "diverged", True)]
    assert grid([plan()], store, quiet) == [(0, "diverged", False)]


def test_a_failed_repetition_does_not_cost_the_finished_record(
    plan, store, quiet, unmeasured, interrupt_at
):
    assert grid([plan()], store, quiet) == [(0, "ok", True)]
    interrupt_at(2, RuntimeError("boom"))
    assert grid([plan()], store, quiet, rerun=True) == [(0, "ok", True)]
    assert [record.status for record in store.read()[0]] == ["ok"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("3 TiB"),
        OverflowError("3 TiB"),
        RuntimeError("DefaultCPUAllocator: 3 TiB"),
        ValueError("array is too big; 3 TiB"),
        ValueError("Maximum allowed dimension exceeded: 3 TiB"),
    ],
    ids=repr,
)
def test_data_that_the_memory_does_not_hold_are_refused_with_what_to_lower(
    plan, store, monkeypatch, error
):
    def load(task, split):
        raise error

    monkeypatch.setattr(ListOps, "load", load)
    line = r"listops@1\[.*\] cannot be held in memory here \(.*3 TiB\); lower its lengths, "
    line += "or its splits as in --set listops.train=1000"
    with pytest.raises(UserError, match=line):
        check([plan()], store, [].append)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), ValueError("a bug")], ids=repr)
def test_any_other_error_of_a_loader_is_seen_whole(plan, store, monkeypatch, error):
    def load(task, split):
        raise error

    monkeypatch.setattr(ListOps, "load", load)
    with pytest.raises(type(error), match="a bug"):
        check([plan()], store, [].append)
