"""Measures the claims of a section, with the plans, trainers, costs and timer of the harness."""

import time
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

from benchmarks.claims import CLAIMS, ClaimRecord, Kind, is_met, write
from harness.costs.plan import of_run
from harness.costs.reference import REFERENCE, SDPA
from harness.costs.work import trainer_of
from harness.data import restore
from harness.environment import describe
from harness.questions import Fixed, question_of, spec_of
from harness.records.cost import step_recipe
from harness.records.fields import Quartiles, now
from harness.records.spec import RunSpec
from harness.timing import Call, sample, wall_clock
from harness.train import Trainer
from tasks.contract import Batch

MIB = 2**20

Seconds = dict[str, list[float]]
"""Seconds of each call by name, in every round."""

GENERATED = ("listops", "pathfinder")
FEW = {"train": 640, "dev": 32, "test": 32}
"""Examples of a generated task: a step does not depend on their number."""


class Runner:
    """Measures for a section: `records` of its `claims` about a device, in the folder `out`.

    If `tiny`, sizes are the smallest, to test the code: such ratios mean nothing.
    """

    def __init__(self, section: str, kind: Kind, out: Path, *, tiny: bool) -> None:
        """Read the claims of a section about a kind of device; nothing is measured yet."""
        self.kind: Kind = kind
        self.device, self.out, self.tiny = torch.device(kind), out, tiny
        self.claims = {claim.name: claim for claim in CLAIMS[section] if self.kind in claim.bounds}
        self.records: list[ClaimRecord] = []
        self.clock = wall_clock(self.device)
        self._start = time.perf_counter()

    @property
    def subjects(self) -> list[str]:
        """The subjects of the claims: the first word of `of`, as `primal` of `primal, fp32`."""
        return [*dict.fromkeys(claim.of.partition(",")[0] for claim in self.claims.values())]

    def size(self, full: int, tiny: int) -> int:
        """`full`, or `tiny` where sizes are the smallest."""
        return tiny if self.tiny else full

    def plan(self, attention: str, task: str, recipe: str, **settings: Any) -> RunSpec:
        """A run on the device; of recipe `smoke` where sizes are the smallest.

        Softmax is SDPA. `settings` are options by owner that differ from the recipe's. UserError
        where the data are missing.
        """
        few = {} if self.tiny or task not in GENERATED else {task: FEW}
        sdpa = {REFERENCE: {"backend": SDPA}} if attention == REFERENCE else {}
        changes = {**few, **sdpa, **settings}
        recipe = "smoke" if self.tiny else recipe
        question = question_of(task, recipe, changes, Fixed(device=self.kind))
        return spec_of(question, attention, changes, device=self.kind)

    def trainer(self, spec: RunSpec, compiled: bool | None = None) -> Trainer:
        """The trainer of a run, with its training data on the device."""
        cost, _ = of_run(spec, "here", 1)
        recipe = spec.train if compiled is None else spec.train.model_copy(
            update={"compiled": compiled}
        )  # fmt: skip
        return trainer_of(cost.model_copy(update={"train": step_recipe(recipe)}))

    def seconds(self, calls: Mapping[str, Call], rounds: int) -> Seconds:
        """Seconds of each call in every round, timed alternately; of equal calls the same."""
        distinct = [*dict.fromkeys(calls.values())]
        taken = sample(distinct, self.clock, rounds=self.size(rounds, 3))
        by_call = dict(zip(distinct, taken, strict=True))
        return {name: by_call[call] for name, call in calls.items()}

    def compare(self, calls: Mapping[str, Call], setting: str, rounds: int) -> Seconds:
        """Record the claims about times of two of these calls; return the seconds of each.

        The ratio is taken in each round.
        """
        seconds = self.seconds(calls, rounds)
        how = f"{setting}; {self.size(rounds, 3)} rounds, alternately"
        for claim in self.claims.values():
            if calls.keys() >= {claim.of, claim.over}:
                figures = milliseconds({name: seconds[name] for name in (claim.of, claim.over)})
                ratio = Quartiles.of_ratio(seconds[claim.of], seconds[claim.over])
                self.record(claim.name, how, ratio, figures)
        return seconds

    def record(
        self, name: str, setting: str, ratio: Quartiles | None = None,
        figures: Mapping[str, Quartiles] | None = None, reason: str = "",
    ) -> None:  # fmt: skip
        """Write the record of a claim, unless the section makes no such claim on this device.

        See `ClaimRecord`; there is a `reason` without a ratio.
        """
        if name not in self.claims:
            return
        claim, end = self.claims[name], time.perf_counter()
        bound = claim.bounds[self.kind]
        record = ClaimRecord(
            name=name, what=claim.what, bound=bound, limit=claim.limit, setting=setting,
            ratio=ratio, met=is_met(ratio, bound), reason=reason, figures={**(figures or {})},
            taken=now(), seconds=round(end - self._start, 3), environment=describe(self.kind),
        )  # fmt: skip
        write(record, self.out, self.kind)
        self.records.append(record)
        self._start = end

    def skip(self, of: str, setting: str, reason: str) -> None:
        """Record why the claims whose `of` matches a pattern have no ratio."""
        for claim in self.claims.values():
            if fnmatch(claim.of, of):
                self.record(claim.name, setting, reason=reason)


def per(values: Quartiles, unit: float) -> Quartiles:
    """Quartiles in another unit."""
    return Quartiles(q1=values.q1 / unit, median=values.median / unit, q3=values.q3 / unit)


def milliseconds(seconds: Mapping[str, Iterable[float]]) -> dict[str, Quartiles]:
    """Figures of a record: the quartiles of seconds by name."""
    return {f"{n} (ms)": Quartiles.of(1000 * s for s in taken) for n, taken in seconds.items()}


def first_batch(trainer: Trainer) -> Batch:
    """The first batch in the order of training."""
    return trainer.train.gather(trainer.order.batch(0))


def shape_of(spec: RunSpec) -> str:
    """Task, recipe, batch and length in words."""
    name, length = f"{spec.task.name}, recipe {spec.question.recipe}", restore(spec).task.max_len
    return f"{name}: B={spec.train.batch} N={length}"
