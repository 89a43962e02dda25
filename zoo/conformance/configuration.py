"""The form of a variant that a check examines, the settings to run it in, and the outcome."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zoo.conformance.tensors import DIM, LENGTH, attended, random_tokens, seeded
from zoo.contract import Attended, Attention, Mask, Size, Traits
from zoo.registry import UserError, Value

ROUNDING = 1e-9  # The relative difference that rounding may cause in double precision


class Outcome(NamedTuple):
    """The result of a check, and the measured value that decided it, as text."""

    passed: bool
    detail: str


class Setting(NamedTuple):
    training: bool = False
    dtype: torch.dtype = torch.float64
    autocast: torch.dtype | None = None
    rotary: bool = False
    heads: int = 2
    dropout: float = 0.0
    short_conv: int = 0
    dim: int = DIM
    max_len: int = LENGTH + 10
    rounding: float = ROUNDING

    def __str__(self) -> str:
        mode = "training" if self.training else "evaluation"
        extra = [f"{self.heads} heads"] * (self.heads > 2) + ["one head"] * (self.heads == 1)
        extra += [f"width {self.dim}"] * (self.dim != DIM) + ["rotary positions"] * self.rotary
        extra += [f"{self.short_conv} taps"] * bool(self.short_conv)
        extra += [f"dropout {self.dropout}"] * bool(self.dropout)
        return f"{self.precision} {mode}{' with ' * bool(extra)}{', '.join(extra)}"

    @property
    def precision(self) -> str:
        dtype = str(self.autocast or self.dtype).removeprefix("torch.")
        return {None: dtype, torch.bfloat16: "autocast"}.get(self.autocast, f"{dtype} autocast")

    def tokens(self, samples: int, n: int = LENGTH, *, seed: int = 2) -> Tensor:
        return random_tokens(samples, n, seed=seed, dim=self.dim)

    def run(
        self, layer: Callable[..., Attended], x: Tensor, mask: Mask = None, context: Any = None
    ) -> Attended:
        # The random generator starts from the same seed in every call.
        context = None if context is None else context.to(self.dtype)
        with seeded(5), self.autocast_region():
            return attended(layer, x.to(self.dtype), mask, context)

    def autocast_region(self) -> AbstractContextManager[object]:
        return torch.autocast("cpu", self.autocast) if self.autocast else nullcontext()


# A claim that holds in one setting may fail in another. Training runs use the last two.
SETTINGS = (
    Setting(),
    Setting(training=True, heads=4, short_conv=4, max_len=LENGTH),
    Setting(rotary=True, heads=1),
    Setting(heads=3, dim=15, short_conv=3, max_len=LENGTH),
    Setting(training=True, dropout=0.2),
    Setting(training=True, dtype=torch.float32, rounding=1e-4),
    Setting(training=True, dtype=torch.float32, autocast=torch.bfloat16, rounding=1e-2),
)

# The settings of checks with large inputs.
FEW = tuple(s for s in SETTINGS if s.dim == DIM and not (s.rotary or s.dropout))


@dataclass(frozen=True)
class Configuration:
    """A variant in its causal or its bidirectional form; other options have defaults."""

    name: str
    variant: type[Attention]
    causal: bool
    options: Mapping[str, Value] = field(default_factory=dict)

    @property
    def traits(self) -> Traits:
        return self.variant.traits

    @property
    def crosses(self) -> bool:
        """Return whether this form accepts a context other than its input."""
        return self.traits.cross and not self.causal

    @property
    def label(self) -> str:
        return f"{self.name}, causal" if self.causal else self.name

    def layer(self, *, seed: int = 1, **changes: Any) -> Attention:
        """A layer in double precision and training mode; `changes` are fields of its size."""
        size = {"dim": DIM, "heads": 2, "max_len": 160, "causal": self.causal, "dropout": 0.0}
        with seeded(seed):
            return self.variant(Size(**size | changes), **self.options).double()

    def layer_for(self, setting: Setting, **changes: Any) -> Attention:
        fields = "rotary", "heads", "dropout", "short_conv", "dim", "max_len"
        size = {name: getattr(setting, name) for name in fields}
        return self.layer(**size | changes).to(setting.dtype).train(setting.training)

    def accepted(self, setting: Setting) -> Setting:
        """The setting, without rotary positions or an odd width of heads where refused."""
        even = setting.dim + setting.heads * (setting.dim // setting.heads % 2)
        for changes in {}, {"rotary": False}, {"dim": even}:
            try:
                self.layer_for(setting._replace(**changes))
            except UserError:
                continue
            return setting._replace(**changes)
        return setting._replace(rotary=False, dim=even)

    def draws(self, setting: Setting) -> bool:
        """Return whether outputs in `setting` depend on random numbers."""
        # Inputs of another length, batch or padding may then draw other numbers.
        return setting.training and (self.traits.stochastic or setting.dropout > 0)


def all_finite(tensors: Iterable[Tensor]) -> Outcome:
    bad = sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
    return Outcome(bad == 0, f"{bad} entries of outputs and gradients are not finite")


def differ_by(distances: Iterable[float], bound: float = ROUNDING) -> Outcome:
    largest = max(distances)
    return Outcome(largest <= bound, f"differ by {largest:.2g}, at most {bound:.0e} allowed")
