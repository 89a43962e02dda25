"""What the checks look at: one variant, in one form, built small, and inputs made to order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.contract import Attended, Attention, Size, Traits, attended_by
from zoo.registry import Value

DIM, HEADS = 16, 2
LENGTH = 150
"""Tokens of an ordinary input: more than any default block, and a multiple of none."""
ROUNDING = 1e-9
"""How far rounding may move an output in double precision."""


class Finding(NamedTuple):
    """What a check found: the verdict, and the figure that decided it, in words."""

    passed: bool
    figure: str


def at_most(value: float, bound: float, what: str) -> Finding:
    """Passes where `value` does not exceed `bound`; NaN does not pass."""
    return Finding(value <= bound, f"{what} {value:.2g}, at most {bound:.0e} allowed")


class Situation(NamedTuple):
    """How a layer is used: mode, precision, positions; and how far rounding may move it there."""

    training: bool = False
    dtype: torch.dtype = torch.float64
    autocast: bool = False
    rotary: bool = False
    rounding: float = ROUNDING

    @property
    def words(self) -> str:
        """For a line of text."""
        precision = "autocast" if self.autocast else str(self.dtype).removeprefix("torch.")
        mode = "training" if self.training else "evaluation"
        return " ".join([precision, mode, *(["with rotary positions"] * self.rotary)])

    def attend(self, layer: Attention, x: Tensor, mask: Tensor | None = None) -> Attended:
        """Self-attention, random draws from one seed."""
        with torch.random.fork_rng(devices=[]), torch.autocast("cpu", enabled=self.autocast):
            torch.manual_seed(5)
            x = x.to(self.dtype)
            return attended(layer, x, mask)


SITUATIONS = (
    Situation(),
    Situation(training=True),
    Situation(rotary=True),
    Situation(training=True, dtype=torch.float32, rounding=1e-4),
    Situation(training=True, dtype=torch.float32, autocast=True, rounding=1e-2),
)
"""A claim that holds in one of them may fail in another, and runs train in the last two."""


def furthest(moved: Mapping[Situation, float]) -> Situation:
    """Where something moved furthest, by what rounding may move it there."""
    return max(moved, key=lambda one: moved[one] / one.rounding)


def everywhere(moved: Mapping[Situation, float], what: str) -> Finding:
    """Passes where nothing moved further than rounding may move it in its situation."""
    worst = furthest(moved)
    return at_most(moved[worst], worst.rounding, f"in {worst.words}, {what}")


@dataclass(frozen=True)
class Subject:
    """A variant in its causal or its bidirectional form; options that are not given are default."""

    name: str
    variant: type[Attention]
    causal: bool
    options: Mapping[str, Value] = field(default_factory=dict)

    @property
    def traits(self) -> Traits:
        """What the variant claims."""
        return self.variant.traits

    @property
    def form(self) -> str:
        """The name, with the form where it is not the usual one."""
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
        """The layer in double precision, training, its parameters drawn from `seed`."""
        size = Size(
            dim=dim,
            heads=HEADS,
            max_len=max_len,
            causal=self.causal,
            dropout=dropout,
            rotary=rotary,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.variant(size, **self.options).double()

    def layer_in(self, situation: Situation) -> Attention:
        """The layer in that situation."""
        layer = self.layer(rotary=situation.rotary).to(situation.dtype)
        return layer.train(situation.training)


def draw(*shape: int, seed: int = 2, dim: int = DIM) -> Float[Tensor, "*shape d"]:
    """Normal tokens in double precision, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dim, dtype=torch.float64, generator=generator)


def paddings(length: int = LENGTH) -> Iterator[Bool[Tensor, "b n"]]:
    """Padding behind the real tokens, ragged; and before, between and behind them."""
    place = torch.arange(length)
    yield place < torch.tensor([length, length * 2 // 3, 7])[:, None]
    between = (place < length // 5) | (place > length * 3 // 5)
    yield torch.stack([between, place % 3 > 0, (place > 3) & (place < length - 10)])


def attended(layer: Attention, x: Tensor, mask: Tensor | None = None) -> Attended:
    """Self-attention; a TypeError where something else comes out."""
    return attended_by(layer, layer(x, x, mask))


def attend(layer: Attention, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """New tokens, by self-attention."""
    return attended(layer, x, mask).tokens


def probe_loss(attended: Attended, mask: Tensor | None = None) -> Float[Tensor, ""]:
    """A loss to which every coordinate of every real token speaks, with its own weight."""
    tokens = attended.tokens if mask is None else attended.tokens[mask]
    ramp = torch.linspace(-1, 1.3, tokens.numel(), dtype=tokens.dtype).reshape(tokens.shape)
    return (tokens * ramp).sum() + sum(attended.losses.values())


def distance(one: Tensor, other: Tensor) -> float:
    """The largest difference of entries, relative to the largest entry where that exceeds 1.

    Infinite where shapes differ, or either is not finite: NaN would be lost in a maximum.
    """
    if one.shape != other.shape:
        return float("inf")
    if one.numel() == 0:
        return 0.0
    if not (one.isfinite().all() and other.isfinite().all()):
        return float("inf")
    return ((one - other).abs().max() / other.abs().max().clamp_min(1.0)).item()
