"""What an attention variant is: the layer's signature, its claims, and the size it is built for.

Axis letters in every shape of this package: `b` batch, `h` heads, `n` query tokens, `m` context
tokens, `d` model width, `e` head width.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.kernels import rotary
from zoo.registry import UserError

NO_LOSSES: Mapping[str, Tensor] = MappingProxyType({})

CAUSAL_ALONE = ", causal"
"""Behind the name of a check that a variant declares to fail in its causal form alone."""

State = tuple[Tensor, ...]
"""What a recurrent layer carries from token to token: tensors whose first axis is the batch."""


class Unsupported(UserError):
    """A variant was asked for something that it does not claim."""


class Attended(NamedTuple):
    """What a layer returns: new tokens, and the terms it adds to the training loss.

    `losses` holds named scalars, already weighted; it is empty outside training.
    """

    tokens: Float[Tensor, "b n d"]
    losses: Mapping[str, Tensor] = NO_LOSSES


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Claims of a variant, each of which can be proved or refuted by running it.

    Attributes:
        causal: it has a form in which output i depends on tokens 0..i only.
        cross: it accepts a context other than its input.
        linear: time and memory grow linearly with the number of tokens.
        stochastic: its training output may differ from its evaluation output without dropout.
        recurrent: its causal form gives `step(x_t, state) -> (y_t, state)`, equal to its forward
            token by token, from a state whose size does not grow with the tokens seen. The keys
            and values that softmax would have to keep do grow: a cache is no recurrence.
        losses: names of the loss terms that it returns while training.
    """

    causal: bool
    cross: bool
    linear: bool
    stochastic: bool
    recurrent: bool
    losses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Look at the types: traits are written by hand, and read everywhere.

        Raises:
            TypeError: a claim is no bool, or `losses` no tuple of names.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "losses" and not isinstance(value, bool):
                raise TypeError(f"Traits.{field.name}={value!r}; give True or False")
        of_names = isinstance(self.losses, tuple) and all(isinstance(n, str) for n in self.losses)
        if not of_names:
            raise TypeError(f"Traits.losses={self.losses!r}; give a tuple of names, as ('ksvd',)")


@dataclass(frozen=True, kw_only=True)
class Size:
    """What every variant is built from.

    Attributes:
        dim: model width d, a multiple of `heads`.
        heads: number of heads h.
        max_len: the most tokens that it will be given.
        causal: whether output i may depend on tokens 0..i only.
        dropout: probability of dropping an attention weight, where the variant has such weights.
        rotary: whether queries and keys are turned by their positions (`zoo.kernels.rotary`); the
            tokens then carry no positions of their own.
    """

    dim: int
    heads: int
    max_len: int
    causal: bool
    dropout: float
    rotary: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that no layer can have.

        Raises:
            UserError: a number is out of its range, or `heads` does not divide `dim`.
        """
        for name in ("dim", "heads", "max_len"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)} must be at least 1; raise it")
        if self.dim % self.heads:
            raise UserError(
                f"dim={self.dim} is not a multiple of heads={self.heads}; change either"
            )
        if not 0.0 <= self.dropout < 1.0:
            raise UserError(f"dropout={self.dropout} must lie in [0, 1); give 0 for none")

    @property
    def head_dim(self) -> int:
        """Width e of one head."""
        return self.dim // self.heads


class Attention(nn.Module, ABC):
    """One attention layer, projections included.

    A subclass is built as `Variant(size, *, option=default, ...)`: the signature is the schema of
    its options. `forward` is pure: it writes no attribute and no buffer.

    Attributes:
        traits: what the variant claims, readable before anything is built.
        expected_failures: checks of `zoo.conformance` that the variant is known to fail, each with its reason;
            a check followed by ", causal" is known to fail in the causal form alone.
        unchecked: why the checks cannot look at the variant, or nothing.
    """

    traits: ClassVar[Traits]
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    unchecked: ClassVar[str] = ""

    def __init_subclass__(cls, **named: object) -> None:
        """Look at the types of what the class says of itself.

        Raises:
            TypeError: one is wrong.
        """
        super().__init_subclass__(**named)
        for name, kind in {
            "traits": Traits,
            "expected_failures": Mapping,
            "unchecked": str,
        }.items():
            if name in vars(cls) and not isinstance(vars(cls)[name], kind):
                found = type(vars(cls)[name]).__name__
                raise TypeError(f"{cls.__name__}.{name} is a {found}; make it a {kind.__name__}")

    def __init__(self, size: Size) -> None:
        """Keep the size.

        Raises:
            Unsupported: `size` asks for causality, which this variant does not claim.
        """
        super().__init__()
        if size.causal and not self.traits.causal:
            raise Unsupported(
                f"{self.name()} is not causal; causal variants: {claimants('causal')}"
            )
        self.size = size

    def __call__(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None
    ) -> Attended:
        """Attend from `x` to `context`, or to `x` itself; see `forward`.

        Raises:
            UserError: `mask` is not boolean.
        """
        if mask is not None and mask.dtype != torch.bool:
            raise UserError(
                f"mask has dtype {mask.dtype}; a mask is boolean, True for tokens to attend to; "
                "convert it, for example with mask.bool()"
            )
        return super().__call__(x, x if context is None else context, mask)

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m d"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Attended:
        """Attend from `x` to `context`; self-attention passes `context=x`.

        Args:
            x: tokens that ask, (b, n, d).
            context: tokens that answer, (b, m, d).
            mask: True for real context tokens; None says that nothing is padded, and lets fast
                kernels run. What comes out at a padded position is unspecified, but finite.

        Raises:
            Unsupported: `context` is not `x`, and the variant claims no cross-attention, or the
                layer is causal and there are not as many tokens in both.
        """

    def start(self, batch: int) -> State:
        """The state before the first token of each of `batch` samples.

        Raises:
            Unsupported: the variant is not recurrent, or this layer is not causal.
        """
        raise self._no_recurrence()

    def step(self, x: Float[Tensor, "b d"], state: State) -> tuple[Float[Tensor, "b d"], State]:
        """What evaluation gives at the next token, and the state behind it.

        Pure: `state` is left as it is, and may be stepped from again. Without dropout and losses,
        whatever the mode of the layer. No token is padded.

        Args:
            x: the next token of each sample, (b, d).
            state: what `start` gave, or the step before; its samples may be selected or reordered
                along the first axis of every tensor.

        Raises:
            Unsupported: the variant is not recurrent.
        """
        raise self._no_recurrence()

    def zero_state(self, batch: int, *shape: int) -> Float[Tensor, "b ..."]:
        """Zeros for the state of a recurrent variant, in fp32 at least.

        Raises:
            Unsupported: the layer is not causal.
        """
        if not self.size.causal:
            raise Unsupported(f"{self.name()} steps in its causal form only; build it causal")
        parameter = next(self.parameters())
        # fp32 at least: sums over thousands of tokens leave half precision no digits.
        dtype = torch.promote_types(parameter.dtype, torch.float32)
        return torch.zeros(batch, *shape, dtype=dtype, device=parameter.device)

    def apply_rotary(
        self, x: Float[Tensor, "b h n e"], place: Int[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b h n e"]:
        """Queries or keys, turned by their places (or by `place`) if the size asks for it."""
        if not self.size.rotary:
            return x
        return rotary.rotate_tokens(x) if place is None else rotary.rotate(x, place)

    def _no_recurrence(self) -> Unsupported:
        return Unsupported(
            f"{self.name()} is not recurrent; recurrent variants: {claimants('recurrent')}"
        )

    def require_self(self, x: Tensor, context: Tensor) -> None:
        """Refuse a foreign context, for the variants that have no cross-attention.

        Raises:
            Unsupported: `context` is another tensor than `x`.
        """
        if context is not x:
            raise Unsupported(
                f"{self.name()} attends to its own input only; "
                f"variants with cross-attention: {claimants('cross')}"
            )

    @classmethod
    def expected_failures_of(cls, *, causal: bool) -> dict[str, str]:
        """The gaps that one form declares, by check."""
        alone = {
            gap: why for gap, why in cls.expected_failures.items() if gap.endswith(CAUSAL_ALONE)
        }
        both = {gap: why for gap, why in cls.expected_failures.items() if gap not in alone}
        own = {gap.removesuffix(CAUSAL_ALONE): why for gap, why in alone.items()}
        return both | own if causal else both

    @classmethod
    def name(cls) -> str:
        """The name under which the variant is registered, or the class's own."""
        from zoo.variants import variants

        return next((name for name, found in variants.items() if found is cls), cls.__name__)


def attended_by(layer: Attention, found: object) -> Attended:
    """What `layer` returned, if it is what a variant returns.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(found, Attended):
        return found
    raise TypeError(
        f"{layer.name()} returned a {type(found).__name__}; "
        "a variant returns zoo.contract.Attended(tokens, losses)"
    )


def state_bytes(state: State) -> int:
    """Memory that `state` takes, all samples together."""
    return sum(part.numel() * part.element_size() for part in state)


def claimants(trait: str) -> str:
    """Names of the registered variants that claim `trait`, for a message."""
    from zoo.variants import variants

    return ", ".join(name for name, found in variants.items() if getattr(found.traits, trait))
