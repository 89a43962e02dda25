"""Small specifications and figures, and functions that fail: nothing heavy is imported."""

from collections.abc import Callable
from typing import Any

from harness.records.cost import CostSpec, Limits, Measured
from harness.records.fields import Quartiles
from harness.records.locks import State
from harness.records.record import Point
from harness.records.spec import Encoder, TrainSpec

SOME = Quartiles(q1=1.0, median=2.0, q3=3.0)
LIMITS = Limits(bytes_per_second=1e9, flops_per_second=1e9)
MEASURED = Measured(
    seconds=SOME, samples=9, ratio=SOME, no_ratio="", peak_bytes=4, memory_ratio=1.0, flops=5,
    analytic_flops=None, backend="", required_bytes=6, parameters=7, state_bytes=None,
    limits=LIMITS, reference="naive", memory_batch=1, memory_bytes=4,
)  # fmt: skip
COST = CostSpec(
    attention="none", options={"none": {}}, level="layer", operation="train", length=64, batch=1,
    batching="1", dim=16, heads=2, causal=False, model=None, precision="fp32", device="cpu",
    machine="test", threads=1,
)  # fmt: skip
POINT = Point(step=1, seconds=1, loss=1, losses={})
STATE = State(host="vm", pid=1, since="2030-01-01T00:00:00+00:00", threads=1, steps=9)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def call(self, seconds: float) -> Callable[[], None]:
        def call():
            self.now += seconds

        return call


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_, **__):
        raise error

    return fail


def axes_of(panel: Any) -> Any:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    panel.draw(axes)
    return axes


def encoder(**fields: Any) -> Encoder:
    return Encoder(**{
        "depth": 2, "dim": 16, "heads": 2, "feed_forward": 24, "head": 8, "dropout": 0.0,
        "attention_dropout": 0.0, "positions": "learned", **fields,
    })  # fmt: skip


def recipe(steps: int, warmup: int, cycle_momentum: bool = False) -> TrainSpec:
    return TrainSpec(
        batch=4, steps=steps, warmup=warmup, lr=1e-3, betas=(0.8, 0.999),
        cycle_momentum=cycle_momentum, eps=1e-6, weight_decay=0.0, evaluations=1, precision="fp32",
        compiled=False,
    )  # fmt: skip
