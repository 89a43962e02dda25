"""`--precision auto` of runs: the faster precision of a row, found once and kept in its store.

Until `faster` replaces it, a request has the precision of `harness.environment.pick_precision`:
bf16 where the device computes it. `harness cost` makes no trial: there `auto` is fp32 on a CPU, as
in suites, and what `pick_precision` gives on CUDA. See docs/decisions/0046-precision-auto.md.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch

from harness.environment import native_precisions
from harness.plan import Draft, Plan
from harness.records.fields import Precision
from harness.records.record import Record
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.reference import choose, key_of, trainer_of, training_call, with_fastest_backend
from harness.timing import short_trial, timer_of
from tasks.registry import tasks
from zoo.variants import variants

MARGIN = 0.9
"""Share of the time of fp32 that bf16 takes at most where it is chosen."""


def faster(draft: Draft, store: Store, announce: Callable[[str], None]) -> Draft:
    """The run in the precision in which its training step is faster on this machine.

    A run that the store has a record or a checkpoint of keeps its precision, and so does every
    other run of a row: the first decision about it is kept in the store. `announce` is called with
    one line for a trial.

    Raises:
        UserError: `Draft.plan` raises it.
    """
    names = native_precisions(torch.device(draft.spec.device))
    if len(names) < 2:
        return draft
    drafts: dict[str, Draft] = {name: draft.in_precision(name) for name in names}
    plans: dict[Precision, Plan] = {name: drafts[name].plan(announce) for name in names}
    for name, plan in plans.items():
        if store.path(plan.spec).exists() or store.checkpoint(plan.spec).exists():
            return drafts[name]
    key = row_key(draft.spec)
    chosen = choose(
        store, key, names, lambda: _recorded(plans, key, store) or try_precisions(plans, announce)
    )
    return drafts[chosen] if chosen else draft


def row_key(spec: RunSpec) -> str:
    """Equal for runs whose steps take the same time: of one variant, task, model and batch."""
    return key_of("precision", {
        "attention": spec.attention, "options": spec.options, "task": spec.task.name,
        "task_options": spec.task.options, "model": spec.model.model_dump(mode="json"),
        "batch": spec.train.batch, "compiled": spec.train.compiled, "device": spec.device,
    })  # fmt: skip


def _recorded(plans: Mapping[Precision, Plan], key: str, store: Store) -> Precision | None:
    """The precision of the runs of a row that the store has, if it has any."""
    spec = next(iter(plans.values())).spec
    prefix = spec.file_name.removesuffix(f"{spec.seed}-{spec.id}")
    for path in sorted(store.folder.glob(f"{prefix}*.json")):
        record = store.read_file(path.name)
        if isinstance(record, Record) and row_key(record.spec) == key:
            return record.spec.train.precision
    return None


def try_precisions(
    plans: Mapping[Precision, Plan], announce: Callable[[str], None]
) -> Precision | None:
    """The faster precision by a short trial of the training step; None without one.

    A variant or task of another package is not run in the process of the command, and one that
    fails has its reason in the record of its run.
    """
    plan = next(iter(plans.values()))
    names = plan.spec.variants
    if tasks.package(plan.spec.task.name) or any(map(variants.package, names)):
        return None
    device = torch.device(plan.spec.device)

    def make(plan: Plan) -> Callable[[], object]:
        plan = with_fastest_backend(plan)
        train = plan.data.splits["train"].to(device)
        # Each would be compiled, which takes longer than the trial.
        return training_call(trainer_of(plan, train, compiled=False))

    makers = {name: partial(make, plan) for name, plan in plans.items()}
    try:
        seconds = short_trial(makers, timer_of(device))
        ratio = seconds["bf16"] / seconds["fp32"]
    except Exception:
        return None
    chosen: Precision = "bf16" if ratio <= MARGIN else "fp32"
    announce(
        f"{plan.spec.attention} on {plan.task.key}: precision {chosen}; a step in bf16 takes "
        f"{ratio:.2f} of the time of fp32"
    )
    return chosen
