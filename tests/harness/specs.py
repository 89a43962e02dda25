"""Small specifications and figures, and functions that fail."""

from collections.abc import Callable
from typing import Any

from harness.records.locks import State
from harness.records.record import Point
from harness.records.spec import Encoder, TrainSpec
from tests.reports.conftest import make_cost

_cost = make_cost("none", 64, seconds=2.0, ratio=2.0, batch=1, batching="1", dim=16, threads=1)
COST, MEASURED = _cost.spec, _cost.measured.model_copy(update={"memory_ratio": 1.0})
LIMITS = MEASURED.limits
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


def nothing(*_: Any) -> None:
    pass


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
