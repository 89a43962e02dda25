"""The contract of an attention variant: its layer and what that returns.

Axis letters in every shape of this package: `b` batch, `h` heads, `n` query tokens, `m` context
tokens, `d` model width, `e` head width.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict
from inspect import get_annotations
from types import MappingProxyType
from typing import Annotated, ClassVar, NamedTuple, get_args, get_origin

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from zoo.kernels import real_tokens, rotary
from zoo.kernels.precision import at_least_fp32, backward_without_autocast
from zoo.packed import Packed, Segments, prefill_packed
from zoo.projection import ShortConvolution
from zoo.registry import CUSTOM, FAMILIES, Registry, UserError, Value, unknown
from zoo.size import (
    Size,
    checked_step,
    require_counts,
    require_dtype,
    require_inputs,
    require_parts,
    require_state,
)
from zoo.traits import Identity, Traits

Token = Float[Tensor, "b d"]
Tokens = Float[Tensor, "b n d"]
Context = Float[Tensor, "b m d"]
Queries = Float[Tensor, "b h n e"]
Keys = Float[Tensor, "b h m e"]
"""Keys, and also values: one for each context token."""
Matrix = Float[Tensor, "b h n m"]
OneToken = Float[Tensor, "b h 1 e"]
"""The query, key or value of a single step."""
Mask = Bool[Tensor, "b m"] | None
"""True for tokens to attend to, as in `scaled_dot_product_attention`; None: nothing is padded."""
Positions = Int[Tensor, "#b n"]

State = tuple[Tensor, ...]
"""The state of a layer between two tokens. The first axis of each tensor is the batch."""

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
"""Types of options that are whole numbers, of at least 1 or 0."""

NO_LOSSES: Mapping[str, Tensor] = MappingProxyType({})

WITH_PADDING = "padding invariance", "truncation equivalence", "batch independence"
"""A variant that fails one of these checks computes padded batches wrongly."""

CAUSAL_SUFFIX = ", causal"
"""Ends the name of a check that is expected to fail in the causal form only."""


class Unsupported(UserError):
    """A variant does not support what is requested."""


class Attended(NamedTuple):
    """The result of a layer: new tokens, and the terms to add to the training loss.

    `losses` holds named scalars, already weighted; it is empty outside training.
    """

    tokens: Tokens
    losses: Mapping[str, Tensor] = NO_LOSSES


class Attention(nn.Module, ABC):
    """One attention layer, projections included.

    A subclass is built as `Variant(size, *, option=default, ...)`: the signature is the schema of
    its options. `forward` is pure: it writes no attribute and no buffer.

    Attributes:
        traits: the claims of the variant, readable before anything is built.
        identities: settings at which it equals another variant.
        expected_failures: checks of `zoo.conformance` that the variant is known to fail, each with
            its reason. A name that ends in ", causal" is expected for the causal form only.
        family: the kind of mechanism, one of `zoo.registry.FAMILIES`; it has a colour in figures.
        unchecked: the reason why the checks cannot run on the variant; empty if they can.
        requires: packages, by their names for pip, that the dependencies of this one do not
            include; `CUDA` for a device.
        is_baseline: whether it takes the place of attention and is none, such as the identity or a
            convolution: what attention achieves is the accuracy above such a model's. A control
            that shows what can be solved, such as a GRU, is no baseline.
        drops_weights: whether `size.dropout` has an effect: on attention weights, in training.
        gpu_kernels: the package with a fused GPU kernel of the mechanism, by `size.causal`.
        version: `MAJOR.MINOR`, in the body of each class: raise MAJOR when what it computes
            changes, MINOR when only its speed does. Without it the digest of its file counts.

    A class may name parameters that weight decay would move away from what they mean, such as
    rates of decay, in `undecayed`; vectors and scalars are exempt without it.
    """

    traits: ClassVar[Traits]
    identities: ClassVar[tuple[Identity, ...]] = ()
    expected_failures: ClassVar[Mapping[str, str]] = MappingProxyType({})
    family: ClassVar[str] = CUSTOM
    unchecked: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    is_baseline: ClassVar[bool] = False
    drops_weights: ClassVar[bool] = False
    gpu_kernels: ClassVar[Mapping[bool, str]] = MappingProxyType({})
    version: ClassVar[str] = ""

    def __init_subclass__(cls, **keywords: object) -> None:
        """Let `step` check its arguments.

        Raises:
            TypeError: a class attribute is of another type, no family, or no version.
        """
        super().__init_subclass__(**keywords)
        if "step" in vars(cls):
            cls.step = checked_step(cls.step)
        for name, annotation in get_annotations(Attention).items():
            (declared,) = get_args(annotation)  # of ClassVar
            kind = get_origin(declared) or declared
            if name in vars(cls) and not isinstance(vars(cls)[name], kind):
                actual = type(vars(cls)[name]).__name__
                raise TypeError(f"{cls.__name__}.{name} is a {actual}; make it a {kind.__name__}")
        if cls.family not in FAMILIES:
            raise TypeError(f"{cls.__name__}: {unknown('family', cls.family, FAMILIES)}")
        if not re.fullmatch(r"(\d+\.\d+)?", cls.version):
            rule = 'is not MAJOR.MINOR; write for example "1.0"'
            raise TypeError(f"{cls.__name__}.version={cls.version!r} {rule}")

    def __init__(self, size: Size) -> None:
        """Store the size; raise `Unsupported` if the variant has no such form."""
        super().__init__()
        self.require_form(causal=size.causal)
        self.size = size
        self._options: Mapping[str, Value] = {}

    @classmethod
    def require_form(cls, *, causal: bool) -> None:
        """Raise `Unsupported` if the variant has no causal form, or none that is not causal."""
        if causal not in cls.traits.forms:
            lacks, form = ("not causal", "causal") if causal else ("causal only", "bidirectional")
            raise Unsupported(f"{cls.name()} is {lacks}; {form} variants: {names_with(form)}")

    @classmethod
    def build(cls, size: Size, options: Mapping[str, Value]) -> "Attention":
        """The layer with those options, which its `repr` then shows."""
        layer = cls(size, **options)
        layer._options = dict(options)
        return layer

    def extra_repr(self) -> str:
        """Size and options, for `repr`."""
        arguments = asdict(self.size) | dict(self._options)
        return ", ".join(f"{name}={value!r}" for name, value in arguments.items())

    def __call__(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Attended:  # fmt: skip
        """Attend from `x` to `context`, or to `x` itself; see `forward`, and `packed` for segments.

        Raises:
            TypeError: `forward` does not return `Attended`.
        """
        context = x if context is None else context
        require_inputs(self.size, x, context, mask, segments)
        if segments is not None:
            if context is not x:
                raise Unsupported(f"{self.name()} got segments and a context; leave out either")
            return self.packed(x, mask, segments)
        self.require_context(x, context)
        for tokens in (x,) if context is x else (x, context):
            require_dtype(self, tokens)
        # Once for all variants: what padding holds, such as NaN, is not read.
        real = real_tokens.zero_padding(context, mask)
        output = super().__call__(real if context is x else x, real, mask)
        if not isinstance(output, Attended):
            raise TypeError(f"{self.name()} returned a {type(output).__name__}; a variant returns "
                            "zoo.contract.Attended(tokens, losses)")  # fmt: skip
        # A plain dict: `torch.export` knows no mapping proxy.
        losses = dict(output.losses)
        backward_without_autocast([output.tokens, *losses.values()], [x, context])
        return Attended(output.tokens, losses)

    @abstractmethod
    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        """Attend from `x` to `context`, or to `x` itself; a call passes `context=x` for that.

        Args:
            x: the tokens that queries are computed from, (b, n, d).
            context: the tokens that keys and values are computed from, (b, m, d).
            mask: True for real context tokens, False for padding; None if nothing is padded, which
                allows fast kernels. A call replaces padded context tokens by zeros. The output at
                a padded position is unspecified, but finite.
        """

    @classmethod
    def require_padding(cls, *, causal: bool) -> None:
        """Raise `Unsupported` if the form is known to treat padding or batches wrongly."""
        known = cls.expected_failures_of(causal=causal)
        if failed := next((check for check in WITH_PADDING if check in known), ""):
            raise Unsupported(f"{cls.name()} is known to fail the check of {failed}; give neither "
                              "a mask nor segments")  # fmt: skip

    def packed(self, x: Tokens, mask: Mask, segments: Segments) -> Attended:
        """Attend within each sequence of packed rows, as if it were a sample: see `zoo.packed`.

        Auxiliary losses need one batch of all sequences, which is then computed at once.
        """
        self.require_padding(causal=self.size.causal)
        together = self.training and bool(self.traits.losses)
        rows = Packed(segments, mask, together=together)
        outputs = [self(part.of(x), mask=part.mask) for part in rows.parts]
        return Attended(rows.join([output.tokens for output in outputs]), outputs[0].losses)

    def backend_for(self, x: Tokens) -> str:
        """The implementation that computes a call on `x`; empty for a variant that has only one."""
        return ""

    def analytic_flops(self, n: int) -> int | None:
        """Floating-point operations in the matrix products of the formula, without loss or padding.

        One sample of n tokens, forward only; None where the variant does not state it. What is
        counted while an implementation runs can be more, such as what it computes again.
        """
        return None

    def matrix(self, x: Tokens, context: Context, mask: Mask) -> Matrix:
        """The attention matrix of each head: what the layer multiplies by, without its value.

        In evaluation mode; the columns of padded tokens are 0. It is built in full, (b, h, n, m).

        Raises:
            Unsupported: the variant multiplies by no such matrix.
        """
        raise Unsupported(f"{self.name()} has no attention matrix")

    def start(self, batch: int) -> State:
        """The state before the first token of each of `batch` samples.

        Raises:
            Unsupported: the variant has no `step`, or the layer is not causal.
        """
        raise self._has_no_step()

    def prefill(
        self, x: Tokens, mask: Mask = None, state: State | None = None,
        segments: Segments | None = None,
    ) -> tuple[Tokens, State]:  # fmt: skip
        """The evaluation outputs at the tokens of a prompt, and the state after them.

        They equal `step` token by token, and are computed in parallel if `extend` is. Pure, as
        `step`. The output at a padded position is unspecified, but finite.

        Args:
            x: the tokens, (b, n, d), at most `size.max_len` of them.
            mask: True for real tokens, (b, n); padding may be anywhere, and leaves no trace.
            state: the state before them; None for `start`.
            segments: of packed prompts: the first sequence of a row continues `state`, each other
                one begins anew, and the state is the one after the last.

        Raises:
            Unsupported: as in `step`; or prompts are padded, and the variant has neither `extend`
                nor a state of constant size.
        """
        require_inputs(self.size, x, x, mask, segments)
        if segments is not None:
            return prefill_packed(self, x, mask, segments, state)
        require_dtype(self, x)
        state = self.start(len(x)) if state is None else state
        require_parts(self, state := require_state(len(x), state))
        draws = self.training and (self.size.dropout or self.traits.stochastic)
        by_step = draws or overrides(type(self), "step", "extend")
        extend = self._extend_by_step if by_step else self.extend
        if mask is None:
            return extend(x, None, state)
        order, inverse = real_tokens.real_tokens_first(mask)
        real = mask.gather(1, order)
        first = real_tokens.zero_padding(real_tokens.gather_tokens(x, order), real)
        tokens, state = extend(first, real, state)
        return real_tokens.gather_tokens(tokens, inverse), state

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        """`prefill`, for a state and tokens in order: in each sample padding is last, and 0.

        A variant that overrides it computes a prompt in parallel; by default it is done by `step`.
        """
        return self._extend_by_step(x, real, state)

    def _extend_by_step(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        outputs = []
        for i, token in enumerate(x.unbind(1)):
            output, after = self.step(token, state)
            outputs.append(output)
            state = after if real is None else self.where_real(real[:, i], after, state)
        return torch.stack(outputs, dim=1), state

    def where_real(self, real: Bool[Tensor, " b"], after: State, before: State) -> State:
        """The state `after` a token, of samples where it is real; else the state `before` it."""
        pairs = list(zip(after, before, strict=True))
        if any(new.shape != old.shape for new, old in pairs):
            raise Unsupported(f"{self.name()} has a state that grows with each token; give prompts "
                              "of one length without a mask, and continue a state with rows of one "
                              "sequence")  # fmt: skip
        return tuple(
            torch.where(real.view(-1, *(1,) * (new.ndim - 1)), new, old) for new, old in pairs
        )

    @checked_step
    def step(self, x: Token, state: State) -> tuple[Token, State]:
        """The evaluation output at the next token, and the state after it.

        Pure: `state` is not changed, and can be used again. There is no dropout and no loss,
        also in training mode. No token is padded, and their number is not limited by
        `size.max_len`.

        Args:
            x: the next token of each sample, (b, d).
            state: the result of `start` or of the last step; its samples may be selected,
                repeated or reordered along the first axis of every tensor; in a recurrence also
                joined with samples after another number of tokens.

        Raises:
            Unsupported: the variant has no `step`, or the layer is not causal.
        """
        if type(self).extend is Attention.extend:
            raise self._has_no_step()
        tokens, state = self.extend(x[:, None], None, state)
        return tokens[:, 0], state

    def zero_state(self, batch: int, *shape: int) -> Float[Tensor, "b ..."]:
        """Zeros for a state, in fp32 at least; raises `Unsupported` if the layer is not causal."""
        if not torch.compiler.is_exporting():  # where it is a symbol
            require_counts(0, batch=batch)
        if not self.size.causal:
            raise Unsupported(f"{self.name()} decodes only if causal; give causal=True")
        # Half precision is too coarse for sums over thousands of tokens.
        dtype = at_least_fp32(self.parameter_dtype)
        tensors = (*self.parameters(), *self.buffers(), torch.empty(0))
        return torch.zeros(batch, *shape, dtype=dtype, device=tensors[0].device)

    @property
    def parameter_dtype(self) -> torch.dtype:
        """The dtype of the first floating-point parameter; fp32 if all are quantised."""
        dtypes = (parameter.dtype for parameter in self.parameters())
        return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.float32)

    def zero_past(self, batch: int, *convolutions: ShortConvolution) -> State:
        """The state of these short convolutions."""
        shapes = [shape for convolution in convolutions for shape in convolution.past_shapes()]
        return tuple(self.zero_state(batch, *shape) for shape in shapes)

    def apply_rotary(self, x: Queries, positions: Positions | None = None) -> Queries:
        """Queries or keys, with rotary position embeddings if `size.rotary`."""
        return rotary.apply_rotary(x, positions) if self.size.rotary else x

    def require_context(self, x: Tensor, context: Tensor | None) -> None:
        """Raise `Unsupported` for a `context` that the layer cannot attend to.

        It is another one than `x`, and there is no cross-attention, as with a short convolution; or
        the layer is causal, and both differ in length.
        """
        if context is None or context is x:
            return
        if not self.traits.cross or self.size.short_conv:
            taps = f" with short_conv={self.size.short_conv}" * bool(self.size.short_conv)
            raise Unsupported(f"{self.name()}{taps} attends to its input only; "
                              f"variants with cross-attention: {names_with('cross')}")  # fmt: skip
        if self.size.causal and (n := x.shape[1]) != (m := context.shape[1]):
            raise Unsupported(f"causal {self.name()} got {n} queries and {m} keys; give as many "
                              "keys as queries")  # fmt: skip

    @classmethod
    def expected_failures_of(cls, *, causal: bool) -> dict[str, str]:
        """The expected failures of the causal form, or of the other one: reasons by check."""
        # Entries of the causal form come last and replace entries of both forms.
        declared = sorted(cls.expected_failures.items(), key=lambda e: e[0].endswith(CAUSAL_SUFFIX))
        return {
            check.removesuffix(CAUSAL_SUFFIX): reason
            for check, reason in declared
            if causal or not check.endswith(CAUSAL_SUFFIX)
        }

    @classmethod
    def name(cls) -> str:
        """The name under which the variant is registered, or else the name of the class."""
        return next((name for name, variant in variants.items() if variant is cls), cls.__name__)

    @classmethod
    def decodes(cls) -> bool:
        """Return whether its causal form has `step`; `recurrent` fixes the size of a state."""
        return cls.traits.recurrent

    def _has_no_step(self) -> Unsupported:
        return Unsupported(f"{self.name()} does not decode; variants that do: {decoding()}")


WRAPPER = (
    "a subclass of zoo.Attention has `traits = zoo.Traits(causal=False, cross=False, linear=False, "
    "stochastic=False, recurrent=False)`, `self.inner = NAME(size.dim)` in `__init__(self, size)`, "
    "and `return zoo.Attended(self.inner(x))` in `forward(self, x, context=None, mask=None)`; "
    "see docs/add_a_variant.md"
)
"""The lines that a plain module lacks, in one line of a message."""

variants: Registry[type[Attention]] = Registry(
    "attention variant", "zoo.variants", group="zoo.variants", base=Attention, wrapper=WRAPPER
)
"""All variants by name: the modules of `zoo.variants`, and plug-ins."""


def overrides(variant: type[Attention], name: str, other: str) -> bool:
    """Return whether a method is defined in a subclass of the class that defines another one."""
    first, second = (
        next(cls for cls in variant.__mro__ if method in vars(cls)) for method in (name, other)
    )
    return first is not second and issubclass(first, second)


def names_with(trait: str) -> str:
    """The registered variants that claim `trait`, for a message."""
    return ", ".join(name for name, variant in variants.items() if getattr(variant.traits, trait))


def decoding() -> str:
    """The registered variants that have `step`, for a message."""
    return ", ".join(name for name, variant in variants.items() if variant.decodes())
