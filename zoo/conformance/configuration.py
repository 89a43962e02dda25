"""The inputs of a check: one form of a variant, at a small size, and the settings to run it in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.conformance.tensors import DIM
from zoo.contract import Attended, Attention, Size, Traits
from zoo.registry import Value

HEADS = 2
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
        return " ".join([precision, mode, *(["with rotary positions"] * self.rotary)])

    def run(self, layer: Attention, x: Tensor, mask: Tensor | None = None) -> Attended:
        """Self-attention; the random generator starts from the same seed in every call."""
        with torch.random.fork_rng(devices=[]), torch.autocast("cpu", enabled=self.autocast):
            torch.manual_seed(5)
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

    def layer(
        self,
        *,
        max_len: int = 160,
        dim: int = DIM,
        dropout: float = 0.0,
        rotary: bool = False,
        seed: int = 1,
    ) -> Attention:
        """A layer in double precision and training mode, initialised from `seed`."""
        shape = {"dim": dim, "heads": HEADS, "max_len": max_len}
        size = Size(**shape, causal=self.causal, dropout=dropout, rotary=rotary)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.variant(size, **self.options).double()

    def layer_for(self, setting: Setting) -> Attention:
        """A layer in the mode, precision and positions of `setting`."""
        layer = self.layer(rotary=setting.rotary).to(setting.dtype)
        return layer.train(setting.training)


def at_most(value: float, bound: float, quantity: str) -> Outcome:
    """Pass if `value` is at most `bound`; NaN does not pass."""
    return Outcome(value <= bound, f"{quantity} {value:.2g}, at most {bound:.0e} allowed")
