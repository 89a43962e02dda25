"""The training step at the paper's ListOps shape: B=32 N=2000, published dropout.

`primal` is compared with the literal model of the paper, with SDPA softmax, with itself without
dropout and in the other precision; `none`, the model without attention, is a lower limit.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.alternating import AlternatingTimes
from benchmarks.claims import Claim, Finding, Kind, Setting, unmeasurable
from benchmarks.workloads import (
    LISTOPS,
    Precision,
    fastest,
    plain_step,
    plan_of,
    shape_of,
    trainer_of,
)
from harness.reference import REFERENCE, SDPA
from tests.literal.build import build

PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")

NO_BF16 = "this processor has no bf16 instructions"


def _where(
    precision: str, cpu: float | None = None, cuda: float | None = None
) -> dict[Kind, float | None]:
    """Bounds by kind of device: on CUDA each model is compiled, and runs in bf16 alone."""
    return {"cpu": cpu, "cuda": cuda} if precision == "bf16" else {"cpu": cpu}


def _pair(precision: str) -> list[Claim]:
    return [
        Claim(
            name=f"step-literal-{precision}",
            what=f"Time of a training step of primal over that of the literal model, {precision}",
            bounds=_where(precision, cpu=0.45, cuda=0.5),
            limit=f"step-none-{precision}: the same model without attention.",
        ),
        Claim(
            name=f"step-softmax-{precision}",
            what=f"Time of a training step of primal over that of SDPA softmax, {precision}",
            bounds=_where(precision, cpu=0.15),
            limit=f"step-none-{precision}: the same model without attention.",
        ),
        Claim(
            name=f"step-none-{precision}",
            what=f"Time of a training step of primal over that of `none`, {precision}",
            bounds=_where(precision),
            limit="1: embedding, feed-forward blocks, head and optimiser are the same.",
        ),
    ]


CLAIMS = [
    *_pair("fp32"),
    *_pair("bf16"),
    Claim(
        name="step-bf16",
        what="Time of a training step of primal in bf16 over that in fp32",
        bounds={"cpu": 0.6},
        limit="0.5 where the step is limited by transfers: half the bytes.",
    ),
    *(
        Claim(
            name=f"step-dropout-{name}",
            what=f"Time of a training step of {name} over that without dropout, in the precision "
            "that `harness run` selects",
            # A tenth of the step is dropout.
            bounds={"cpu": 1 / 0.9, "cuda": 1 / 0.9},
            limit="1: dropout that costs nothing.",
        )
        for name in ("primal", "none")
    ),
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`."""
    chosen = fastest(setting)
    precisions = [chosen] if setting.kind == "cuda" else [*PRECISIONS[: 1 + (chosen == "bf16")]]
    calls: dict[str, Callable[[], Any]] = {}
    for precision in precisions:
        for name in ("primal", "softmax", "none"):
            calls[f"{name}, {precision}"] = step_of(setting, name, precision)
        calls[f"literal, {precision}"] = literal_step(setting, precision)
    for name in ("primal", "none"):
        calls[f"{name}, {chosen}, no dropout"] = step_of(setting, name, chosen, dropout=0.0)
    shape = shape_of(plan_of(setting, "primal", "listops", "paper", "fp32", LISTOPS))
    times = AlternatingTimes(calls, setting, rounds=5)
    for precision in precisions:
        for other in ("literal", "softmax", "none"):
            names = f"primal, {precision}", f"{other}, {precision}"
            yield times.finding(f"step-{other}-{precision}", *names, f"{shape}, {precision}")
    for name in ("primal", "none"):
        own = f"{name}, {chosen}"
        yield times.finding(f"step-dropout-{name}", own, f"{own}, no dropout", f"{shape}, {chosen}")
    if len(precisions) > 1:
        yield times.finding("step-bf16", "primal, bf16", "primal, fp32", shape)
    elif chosen == "fp32":
        names = [claim.name for claim in CLAIMS if claim.name.endswith("bf16")]
        yield from unmeasurable(names, shape, NO_BF16)


def step_of(
    setting: Setting, attention: str, precision: Precision, dropout: float | None = None
) -> Callable[[], Any]:
    """The step of the harness, on the first batch."""
    settings = dict(LISTOPS)
    if dropout is not None:
        settings["model"] = {"dropout": dropout}
    if attention == REFERENCE:
        settings[REFERENCE] = {"backend": SDPA}
    trainer = trainer_of(
        plan_of(setting, attention, "listops", "paper", precision, settings), setting
    )
    return lambda: trainer.step(0)


def literal_step(setting: Setting, precision: Precision) -> Callable[[], Any]:
    """An eager step of the literal model of the paper, on the same batch."""
    plan = plan_of(setting, "primal", "listops", "paper", precision, LISTOPS)
    trainer = trainer_of(plan, setting, compiled=False)
    torch.manual_seed(0)
    model = build(plan.spec, plan.task).to(setting.device)
    return plain_step(model, plan, setting, lambda: trainer.train.gather(trainer.order.batch(0)))
