"""The size that every variant is built for, and the checks of its numbers."""

from dataclasses import dataclass
from numbers import Integral, Real

from zoo.registry import UserError


@dataclass(frozen=True, kw_only=True)
class Size:
    """The arguments that every variant is built from.

    Attributes:
        dim: model width d, a multiple of `heads`.
        heads: number of heads h.
        max_len: the largest number of tokens in an input; a longer one is rejected. The steps of a
            recurrent layer may continue beyond it.
        causal: whether output i may depend on tokens 0..i only.
        dropout: probability of dropping an attention weight, where the variant has such weights.
        rotary: whether queries and keys get rotary position embeddings (`zoo.kernels.rotary`); the
            input then has no position embedding of its own.
        short_conv: taps of the convolution behind the projections of queries, keys and values
            (`zoo.projection`); 0 for none.
    """

    dim: int
    heads: int
    max_len: int
    causal: bool
    dropout: float
    rotary: bool = False
    short_conv: int = 0

    def __post_init__(self) -> None:
        """Raise `UserError` for a wrong type or range, or if `heads` does not divide `dim`."""
        require_counts(dim=self.dim, heads=self.heads, max_len=self.max_len)
        if self.dim % self.heads:
            raise UserError(
                f"dim={self.dim} is not a multiple of heads={self.heads}; change either"
            )
        require_probability("dropout", self.dropout)
        if self.short_conv != 0:
            require_counts(short_conv=self.short_conv)
        for name in ("causal", "rotary"):
            if not isinstance(value := getattr(self, name), bool):
                raise UserError(f"{name}={value!r} is not a bool; give True or False")

    @property
    def head_dim(self) -> int:
        """Width e of one head."""
        return self.dim // self.heads


def require_counts(**given: object) -> None:
    """Raise `UserError` if one of the arguments is not a whole number of at least 1."""
    for name, value in given.items():
        # A bool is an Integral, too.
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UserError(f"{name}={value!r} is not an int; give a whole number")
        if value < 1:
            raise UserError(f"{name}={value} must be at least 1; raise it")


def require_probability(name: str, value: object) -> None:
    """Raise `UserError` if the argument is not a number in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UserError(f"{name}={value!r} is not a float; give a number in [0, 1)")
    if not 0.0 <= float(value) < 1.0:
        raise UserError(f"{name}={value} must be in [0, 1); give 0 for none")
