"""The form of a variant that a check examines, the settings to run it in, and the outcome."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.conformance.tensors import DIM, seeded
from zoo.contract import Attended, Attention, Size, Traits
from zoo.registry import Value

ROUNDING = 1e-9
"""The relative difference that rounding may cause in double precision."""


class Outcome(NamedTuple):
    """Whether a check passed, and the measured value that decided it, as text."""

    passed: bool
    detail: str


class Setting(NamedTuple):
    """How a layer is run: mode, precision, positions; and the relative rounding error allowed."""

    training: bool = False
    dtype: torch.dtype = torch.float64
    autocast: bool = False
    rotary: bool = False
    rounding: float = ROUNDING

    def __str__(self) -> str:
        """For messages, such as `float64 evaluation`."""
        precision = "autocast" if self.autocast else str(self.dtype).removeprefix("torch.")
        mode = "training" if self.training else "evaluation"
        return f"{precision} {mode}{' with rotary positions' * self.rotary}"

    def run(self, layer: Attention, x: Tensor, mask: Tensor | None = None) -> Attended:
        """Self-attention; the random generator starts from the same seed in every call."""
        with seeded(5), torch.autocast("cpu", enabled=self.autocast):
            return layer(x.to(self.dtype), mask=mask)


SETTINGS = (
    Setting(),
    Setting(training=True),
    Setting(rotary=True),
    Setting(training=True, dtype=torch.float32, rounding=1e-4),
    Setting(training=True, dtype=torch.float32, autocast=True, rounding=1e-2),
)
"""A claim that holds in one setting may fail in another. Training runs use the last two."""


@dataclass(frozen=True)
class Configuration:
    """A variant in its causal or its bidirectional form; other options have defaults."""

    name: str
    variant: type[Attention]
    causal: bool
    options: Mapping[str, Value] = field(default_factory=dict)

    @property
    def traits(self) -> Traits:
        """What the variant claims."""
        return self.variant.traits

    @property
    def label(self) -> str:
        """The name, followed by ", causal" for the causal form."""
        return f"{self.name}, causal" if self.causal else self.name

    def layer(self, *, seed: int = 1, **changes: Any) -> Attention:
        """A layer in double precision and training mode; `changes` are fields of its size."""
        size = {"dim": DIM, "heads": 2, "max_len": 160, "causal": self.causal, "dropout": 0.0}
        with seeded(seed):
            return self.variant(Size(**size | changes), **self.options).double()

    def layer_for(self, setting: Setting) -> Attention:
        """A layer in the mode, precision and positions of `setting`."""
        layer = self.layer(rotary=setting.rotary).to(setting.dtype)
        return layer.train(setting.training)


def all_finite(tensors: Iterable[Tensor]) -> Outcome:
    """Pass if outputs and gradients have finite entries only."""
    bad = sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    return Outcome(bad == 0, f"{bad} entries of outputs and gradients are not finite")


def differ_by(distances: Iterable[float], bound: float = ROUNDING) -> Outcome:
    """Pass if the largest distance is at most `bound`."""
    largest = max(distances)
    return Outcome(largest <= bound, f"differ by {largest:.2g}, at most {bound:.0e} allowed")
