"""`harness run --over`: the runs of a sweep, and the state of recurrent models."""

import json

import pandas as pd
import pytest

from harness.tuning import default_of, require_one_processor, varied
from reports.sweep import values_of
from tests.harness.conftest import requested
from zoo.registry import UserError

MQAR = {"mqar": {"train": 64, "vocabulary": 32}}


def swept(field, values):
    """The runs of primal at each value of a field."""
    settings = varied(MQAR, field, values, "mqar", "primal")
    return [requested("primal", "mqar", **of) for of in settings]


@pytest.mark.parametrize(
    ("field", "values", "value_of"),
    [
        ("task.pairs", ["2", "4"], lambda spec: spec.task.options["pairs"]),
        ("mqar.pairs", ["2", "4"], lambda spec: spec.task.options["pairs"]),
        ("model.dim", ["32", "64"], lambda spec: spec.model.dim),
        ("primal.rank", ["2", "4"], lambda spec: spec.options["primal"]["rank"]),
    ],
)
def test_every_value_is_a_run_that_differs_in_it_alone(field, values, value_of):
    specs = swept(field, values)
    assert [value_of(spec) for spec in specs] == [*map(int, values)]
    assert {spec.task.options["vocabulary"] for spec in specs} == {32}


def test_a_default_that_a_specification_leaves_out_is_a_value_of_a_sweep():
    plain = requested("primal", "mqar", **MQAR)
    specs = swept("primal.sides", ["both", "right"])
    # Runs from before there was this option keep their identity.
    assert specs[0].id == plain.id
    default = default_of("primal.sides")
    runs = pd.DataFrame([
        {"task.name": "mqar", "options": json.dumps(spec.options),
         "primal.sides": spec.options["primal"].get("sides")} for spec in [plain, *specs]
    ])  # fmt: skip
    assert values_of(runs, "primal.sides", default).tolist() == ["both", "both", "right"]
    assert values_of(runs, "linear.chunk", 128).tolist() == [None] * 3
    assert default_of("mqar.pairs") is None


@pytest.mark.parametrize(
    ("field", "message"),
    [("linear.features", "primal on mqar has no options of 'linear'; give one of model, mqar"),
     ("task.vocabulary", "--set mqar.vocabulary=32 gives a field that is swept")],
)  # fmt: skip
def test_a_field_that_no_run_has_is_rejected(field, message):
    with pytest.raises(UserError, match=message):
        varied({"mqar": {"vocabulary": 32}}, field, ["1", "2"], "mqar", "primal")


def test_a_sweep_of_two_processors_is_rejected_before_training(store, run_here):
    plans = swept("primal.rank", ["2", "4"])
    require_one_processor(plans, store)
    record = run_here(plans[0])
    require_one_processor(plans, store)
    other = record.environment.model_copy(update={"device": "an abacus"})
    store.write(record.model_copy(update={"environment": other}))
    with pytest.raises(UserError, match=r"would differ in device: .*an abacus"):
        require_one_processor(plans, store)
    # All of one other machine: nothing is left to be trained here.
    store.write(record.model_copy(update={"spec": plans[1], "environment": other}))
    require_one_processor(plans, store)
    threads = record.environment.model_copy(update={"threads": 99})
    store.write(record.model_copy(update={"environment": threads}))
    store.path(plans[1]).unlink()
    require_one_processor(plans, store)


@pytest.mark.slow
def test_a_sweep_runs_every_cell_once_and_writes_its_page(call, store, outcomes):
    argv = ["run", "--attention", "softmax,none", "--task", "majority", "--budget", "smoke",
            "--over", "task.max_len=8,16"]  # fmt: skip
    code, out, _ = call(*argv)
    assert code == 0
    assert "sweep_task_max_len.md" in out
    assert len(store.read()[0]) == 4
    before = (store.folder / "sweep_task_max_len.csv").read_bytes()
    assert call(*argv)[0] == 0
    assert (store.folder / "sweep_task_max_len.csv").read_bytes() == before
