"""One defect for each check, or for each part of it that could be left out."""

from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.zoo.faulty.correct import TRAITS, Bidirectional, CausalOnly, Correct, LowRank, Recurrent
from tests.zoo.faulty.leaks import packs
from tests.zoo.faulty.planted import (
    Sloped,
    arguments,
    built,
    claiming,
    coupled,
    fails,
    inputs,
    masked,
    outputs,
    padded,
    scaled,
    steps,
    variant,
    writes,
    wrong,
)
from zoo.contract import Attended, Attention, Identity, Traits
from zoo.recompute import samples_at_a_time
from zoo.variants.linear import Linear
from zoo.variants.soft import Soft

BF16, NAN = torch.bfloat16, float("nan")
DROPS = claiming(Bidirectional, drops_weights=True)
STOCHASTIC = claiming(Correct, traits=replace(TRAITS, stochastic=True))
LEAN = claiming(Linear, traits=replace(TRAITS, causal=False, linear=True))
LIKE_SOFTMAX, EXACTLY_SOFTMAX = (
    claiming(Bidirectional, identities=(Identity(other="softmax", where="always", **options),))
    for options in ({}, {"other_options": {"backend": "sdpa"}, "exact": True})
)


def autocast(*_) -> bool:
    return torch.is_autocast_enabled("cpu")


def stored(x):
    """What is in memory at a transposed tensor, row by row."""
    if x is None or x.is_contiguous() or x.untyped_storage().nbytes() != x.nbytes:
        return x
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())


def bare_call(self, x, context=None, mask=None):
    # Without what a call does for all variants.
    return nn.Module.__call__(self, x, x if context is None else context, mask)


# fmt: off
# Shapes and precisions.
outputs("lengths",
    NaNBeyond1000Tokens=scaled(lambda h: h.n > 1000, NAN),
    OneTokenWithMask=padded(lambda h: h.y[:, :, :1]))
arguments("memory layouts",
    ReadsStorageFromItsStart=lambda layer, x, context, mask: (
        x.as_strided(x.shape, x.stride(), 0) if x.is_contiguous() else x, context, mask
    ),
    ReadsStorageOfPaddedTokens=lambda layer, x, context, mask: (
        x if mask is None else stored(x), context, mask
    ),
    ReadsStorageOfTransposedBatch=lambda layer, x, context, mask: (
        stored(x) if mask is None and x.stride(-1) == 1 else x, context, mask
    ),
    ReadsStorageOfMask=lambda layer, x, context, mask: (x, context, stored(mask)))
variant("memory layouts", "ZeroForGradientOfSum", Bidirectional,
    forward=lambda self, *call: Attended(Sloped.apply(
        Bidirectional.forward(self, *call).tokens,
        lambda slope: slope if slope.stride(-1) else 0 * slope,
    )))
ReturnsFp32 = variant("precisions", "ReturnsFp32", Bidirectional,
    forward=lambda self, *call: Attended(
        (tokens := Bidirectional.forward(self, *call).tokens)
        .to(torch.promote_types(tokens.dtype, torch.float32))
    ))
outputs("precisions",
    ScalesInSinglePrecision=scaled(lambda h: h.v.dtype == torch.float32 and not autocast(), 1.01))
outputs("large inputs, fp16",
    OverflowsBeforeItsNorm=lambda h: F.layer_norm(1e4 * h.y, h.y.shape[-1:]))
# The value is clamped, and its gradient is not.
outputs("large inputs", OverflowsInBackward=lambda h: h.y + 0.01 * h.q.exp().clamp_max(1.0))
# fmt: on


# Gradients.
class ForgetsItsSlope(torch.autograd.Function):
    """A tangent whose gradient is right, and has no gradient itself."""

    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.slope = (1 - y.square()).detach()
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.slope


class KeepsOnClass(torch.autograd.Function):
    """It forgets what an earlier call of another layer has kept."""

    @staticmethod
    def forward(ctx, x):
        KeepsOnClass.x = x
        return x.tanh()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 - KeepsOnClass.x.tanh().square())


def of_fourth_head(h):
    """The values of the fourth head scale all heads after it."""
    gate = h.v.sigmoid()[:, torch.arange(h.v.shape[1]).clamp_max(3)]
    return Bidirectional.attend(h.layer, h.q, h.k, torch.ones_like(h.v), h.mask) * gate


def with_gradients_of_weights(self, *call):
    tracked = torch.is_grad_enabled() and self.out.weight.requires_grad
    with torch.set_grad_enabled(tracked):
        return Bidirectional.forward(self, *call)


# fmt: off
variant("all parameters get gradients", "MultipliesByZero", Bidirectional,
    __init__=built(Bidirectional, lambda _, size: {
        "spare": nn.Parameter(torch.ones(size.head_dim))
    }),
    attend=lambda self, *heads: Bidirectional.attend(self, *heads) + 0 * self.spare)
outputs("all parameters get gradients", SharesGateFromFourthHeadOn=of_fourth_head)
variant("all parameters get gradients", "NeedsGradientOfWeights", Bidirectional,
    forward=with_gradients_of_weights)
inputs("all parameters get gradients",
    KeepsTensorsOnClassWithoutMask=lambda h: h._replace(
        k=KeepsOnClass.apply(h.k) if h.mask is None else h.k.tanh()
    ),
    KeepsTensorsOnClassAbove512=lambda h: h._replace(
        k=KeepsOnClass.apply(h.k) if h.m > 512 else h.k.tanh()
    ))
inputs("gradients", GradientNaNInEvaluationWithoutMask=wrong(
    lambda h: h.m > 64 and h.mask is None and not h.layer.training, NAN
))
inputs("gradients, long inputs",
    DetachesKeysBeyond1200Tokens=lambda h: h._replace(k=h.k.detach()) if h.m > 1200 else h,
    DetachesPaddedKeysBeyond1200Tokens=lambda h: (
        h._replace(k=h.k.detach()) if h.m > 1200 and h.mask is not None else h
    ))
inputs("gradients, fp32 and bf16",
    GradientNaNInBf16ModuleWithMask=wrong(lambda h: h.k.dtype == BF16 and h.mask is not None, NAN))
variant("gradients, backward under autocast", "RoundsProductsOfGradients", Soft,
    __call__=bare_call)
variant("second derivatives", "HasNoSecondDerivative", LowRank,
    attend=lambda self, q, k, v, mask: LowRank.attend(self, q, k, ForgetsItsSlope.apply(v), mask))


# Losses.
class Lossy(Bidirectional):
    """With the losses `found`, of the squares of real tokens."""

    traits = replace(TRAITS, causal=False, losses=("size",))

    def forward(self, x, context, mask):
        tokens, _ = super().forward(x, context, mask)
        real = tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0)
        return Attended(tokens, self.found(real.square()))


def in_training(losses):
    return lambda self, squares: losses(squares.mean()) if self.training else {}


variant("declared losses", "ReturnsUndeclaredLoss", Lossy,
    found=in_training(lambda loss: {"secret": loss}))
variant("declared losses", "ReturnsLossInEvaluation", Lossy,
    found=lambda self, squares: {"size": squares.mean()})
variant("gradients", "HalvesGradientOfLoss", Lossy,
    found=in_training(lambda loss: {"size": (loss + loss.detach()) / 2}))
variant("auxiliary loss does not dominate", "ReturnsLargeLoss", Lossy,
    found=in_training(lambda loss: {"size": 1e4 * loss}))


# Padding and batches.
def kept_by_length(value):
    """Times a number of the layer that is kept in a table by the length alone."""
    table = {}
    return lambda h: h.y * table.setdefault(h.n, value(h))


def divided(h):
    """Return whether the batch is one that is divided on a CPU."""
    return samples_at_a_time(h.q) < len(h.q)


# More than rounding.
outputs("padding invariance",
    AddsTraceOfPadding=lambda h: h.y + 1e-7 * h.v.tanh().mean(2, keepdim=True))
variant("padding invariance", "MultipliesNaNByZero", Bidirectional, __call__=bare_call)
inputs("padding invariance, long inputs",
    IgnoresMaskBeyond2048Tokens=masked(lambda h: h.n <= 2048))
outputs("truncation equivalence", Correct,
    KeepsTableOfOtherForm=kept_by_length(lambda h: 1.1 if h.layer.size.causal else 1.0))
inputs("truncation equivalence", GradientWrongAtOneAbove40=wrong(lambda h: h.m % 40 == 1))
outputs("fully masked input",
    DividesByCountOfBatch=padded(lambda h: h.y * (h.mask.sum() / h.mask.sum()).to(h.v)),
    # The gradient of the division by 0 remains.
    ReplacesNaNInForwardOnly=padded(
        lambda h: torch.where(h.count > 0, h.y / h.count * h.count, 0.0)
    ))
outputs("empty batch",
    InfersTheNumberOfSamples=lambda h: h.y.reshape(-1, h.y[:1].numel()).reshape(h.y.shape))
outputs("batch independence", ScalesByBatchSize=lambda h: h.y * (1 + len(h.q) / 100),
    CoupledInBatchesOf8=coupled(lambda h: h.layer.training and len(h.q) == 8))
outputs("batch independence", STOCHASTIC,
    ScalesByCountOfBatchInTraining=padded(
        lambda h: h.y * (h.mask.to(h.v).mean() if h.layer.training else 1.0)
    ))
outputs("batch independence, large batches",
    CoupledAbove150=coupled(lambda h: h.layer.training and len(h.q) > 150))
inputs("batch independence, large batches", GradientWrongInDividedBatch=wrong(divided))


# Packed rows.
OF_THE_PAST = claiming(
    Recurrent, traits=Traits.causal_only(linear=False, stochastic=False, recurrent=True)
)
for base, leak in (OF_THE_PAST, "heads"), (Correct, "convolution"), (Recurrent, "positions"):
    fails("packed equals separate")(packs(base, leak))


def of_whole_rows(self, x, mask=None, state=None, segments=None):
    tokens, after = Recurrent.prefill(self, x, mask, state, segments)
    if segments is None or state is not None:
        return tokens, after
    return self.extend(x, None, self.start(len(x)))[0], after


variant("packed prompts equal separate", "PrefillsWholeRows", Recurrent, prefill=of_whole_rows)
variant("packed prompts equal separate", "ForgetsStateBeforePackedPrompt", Recurrent,
    prefill=lambda self, x, mask=None, state=None, segments=None: Recurrent.prefill(
        self, x, mask, state if segments is None else None, segments
    ))
variant("rejects packed sequences", "IgnoresSegments", Correct,
    expected_failures=MappingProxyType({"padding invariance": "it is not tested here"}),
    packed=lambda self, x, mask, segments: self(x, mask=mask))


# Causality, receptive fields and other claims.
def across_blocks(size):
    """Heads in which the last token of a block depends on the next one."""

    def change(h):
        if not h.layer.size.causal or h.n <= size:
            return h.y
        y = h.y.clone()
        y[:, :, size - 1 : -1 : size] += 0.1 * h.real[:, :, size::size]
        return y

    return change


def less_later_tokens(h):
    # The sum of earlier tokens is the sum of all minus the sum of later ones.
    future = h.real.flip(2).cumsum(2).flip(2) - h.real
    return h.y + 0.1 * (h.real.sum(2, keepdim=True) - future) if h.layer.size.causal else h.y


def of_first_token(h):
    first = h._replace(v=torch.ones_like(h.v)).real[:, :, :1]
    return h.v + first * torch.tanh(h.q * h.k[:, :, :1]) if h.layer.size.causal else h.y


outputs("causality", Correct, ScalesByLength=lambda h: h.y * (1 + h.count / 100),
    ScalesByPadding=lambda h: h.y * (1 + (h.m - h.count) / 100))
outputs("causality, long inputs", Correct, LeaksAcrossBlocksOf2048=across_blocks(2048),
    LeaksAcrossBlocksOf384=across_blocks(384))
outputs("causality, fp32", Correct, SubtractsLaterTokens=less_later_tokens)
outputs("causal receptive field", Correct, CausalFormOfFirstToken=of_first_token)
variant("position sensitivity", "RotatesKeysAlone", Bidirectional,
    _heads=lambda self, query, *parts: (
        self._split(query), *Bidirectional._heads(self, query, *parts)[1:]
    ))
variant("position sensitivity", "IgnoresRotaryPositions", Bidirectional,
    apply_rotary=lambda self, x, positions=None: x)
arguments("cross-attention",
    IgnoresContextOfSameLength=lambda layer, x, context, mask: (
        x, context if context.shape != x.shape else x, mask
    ))
inputs("cross-attention", PadsContextOnTheRight=lambda h: h if h.mask is None or h.n == h.m else (
    h._replace(mask=torch.arange(h.m) < h.mask.sum(1, keepdim=True))
))
variant("rejects cross-attention", "AcceptsContextWithoutClaim", Attention,
    traits=replace(TRAITS, causal=False, cross=False),
    __init__=built(Attention, lambda self, size: {"map": nn.Linear(size.dim, size.dim)}),
    forward=lambda self, x, context, mask: Attended(self.map(x)), __call__=bare_call)
variant("rejects causal", "BuildsCausalWithoutClaim", Bidirectional,
    __init__=lambda self, size: Bidirectional.__init__(self, replace(size, causal=False)))
variant("rejects bidirectional", "BuildsBidirectionalWithoutClaim", CausalOnly,
    __init__=lambda self, size: CausalOnly.__init__(self, replace(size, causal=True)))
variant("rejects recurrence", "RecurrentWithoutClaim", Recurrent,
    traits=replace(Recurrent.traits, recurrent=False))
variant("rejects non-boolean mask", "AcceptsFloatMask", Bidirectional,
    __call__=lambda self, x, context=None, mask=None: Bidirectional.__call__(
        self, x, context, None if mask is None else mask.bool()
    ))
outputs("identities", LIKE_SOFTMAX,
    DiffersFromSoftmaxWithPadding=scaled(lambda h: h.mask is not None, 1 + 1e-10))
inputs("identities", LIKE_SOFTMAX, StopsGradientsOfKeys=lambda h: h._replace(k=h.k.detach()))
inputs("identities", EXACTLY_SOFTMAX, RoundsDifferently=lambda h: h._replace(q=h.q * 3, k=h.k / 3))


# Random numbers and side effects.
def dropped(h, kept=lambda h: torch.rand_like(h.y) > h.layer.size.dropout):
    return h.y * kept(h) if h.layer.training and h.layer.size.dropout else h.y


def rescaled_by_p(h):
    p = h.layer.size.dropout
    return dropped(h, lambda _: (torch.rand_like(h.y) > p) / p)


def drawn_once(h, table={}):  # noqa: B006
    kept = table.setdefault(h.y.shape, torch.rand(h.y.shape) > 0.5)
    return dropped(h, lambda _: 2 * kept)


def unseeded(h):
    generator = torch.Generator()
    generator.seed()
    return torch.rand(h.v.shape[-2:], generator=generator) > h.layer.size.dropout


class Calls:
    shapes: ClassVar[list] = []
    count = 0


CALLS, COUNTED, COUNTS, NORM = [], Calls(), np.zeros(1), nn.BatchNorm1d(1).double()
cached = cache(float)


outputs("eval is deterministic",
    AddsDropoutInEvaluation=lambda h: F.dropout(h.y, 0.1, training=True))
outputs("no dropout in eval", ScalesByDropoutInEvaluation=lambda h: (
    h.y * (1.0 if h.layer.training else 1 - h.layer.size.dropout)
))
outputs("declared dropout", DROPS, DropsWithoutRescaling=dropped, RescalesByP=rescaled_by_p,
    DrawsDropoutOnceAShape=drawn_once, IgnoresDropout=lambda h: h.y,
    DropsWithoutRescalingIfPadded=lambda h: (
        F.dropout(h.y, h.layer.dropout) if h.mask is None else dropped(h)
    ))
outputs("seeded determinism", DrawsUnseededDropout=lambda h: dropped(h, unseeded))
outputs("train equals eval",
    ScalesInTrainingWithMask=scaled(lambda h: h.layer.training and h.mask is not None))
outputs("no_grad equals grad",
    DiffersInInferenceModeWithPadding=padded(scaled(lambda _: torch.is_inference_mode_enabled())))
writes("side-effect-free forward",
    WritesAttribute=lambda layer, x, *_: setattr(layer, "last", x),
    FillsMaskOfPaddedSample=lambda layer, x, context, mask: (
        None if mask is None else mask[:, 0].logical_or_(~mask.any(1))
    ),
    SetsSeed=lambda *_: torch.manual_seed(0),
    AppendsToListOfModule=lambda layer, x, *_: CALLS.append(x.shape),
    AppendsToListOfClass=lambda layer, x, *_: Calls.shapes.append(x.shape),
    AppendsToDefault=lambda layer, x, *_, shapes=[]: shapes.append(x.shape),
    CountsInObject=lambda *_: setattr(COUNTED, "count", COUNTED.count + 1),
    CountsInArray=lambda *_: np.add(COUNTS, 1, out=COUNTS),
    FillsCacheByValue=lambda layer, x, *_: cached(x.sum().item()),
    RunsNormOfModule=lambda layer, x, *_: NORM(x.reshape(-1, 1)))
# Behind a short convolution, as its taps would be.
variant("state_dict round trip", "NumbersOutsideStateDict", Correct,
    __init__=built(Correct, lambda _, size: {
        "secret": size.short_conv * torch.randn(size.head_dim)
    }),
    attend=lambda self, *heads: Correct.attend(self, *heads) + self.secret.to(heads[2].dtype))


# Modules and transforms.
def reading_weight_in_steps(self, x, heads):
    if heads.shape[2] > 1:
        return Recurrent._merge(self, x, heads)
    return F.linear(heads.transpose(1, 2).flatten(-2), self.out.weight, self.out.bias)


variant("linear layers are called", "ReadsWeightInSteps", Recurrent,
    _merge=reading_weight_in_steps)
outputs("compiles", DiffersWhenCompiled=scaled(lambda h: torch.compiler.is_compiling()))
outputs("vmap", WritesIntoUnbatchedBuffer=padded(
    lambda h: torch.zeros(h.q.shape, dtype=h.q.dtype).copy_(h.y)
))
outputs("export",
    DiffersWhenExported=padded(scaled(lambda _: torch.compiler.is_exporting(), 1 + 1e-6)))


# Steps and their state.
def counting(of):
    """Tokens with the positions `of(count)`."""
    return lambda layer, x, before, tokens, after: (
        Recurrent.step(layer, x, (of(before[0]), *before[1:]))[0], after
    )


def in_bf16(layer, x, before, tokens, after):
    return tokens, (*after[:-1], after[-1].to(layer.out.weight.dtype))


def writing_to_state(layer, x, before, tokens, after):
    if not torch.is_grad_enabled():
        before[-1].mul_(2)
    return tokens, after


steps("step equals forward",
    ScalesStepsOfOddWidth=lambda layer, x, before, tokens, after: (
        tokens * (1 + 0.01 * (layer.size.head_dim % 2)), after
    ),
    StepDiffersAfter1000=lambda layer, x, before, tokens, after: (
        torch.where(before[0][:, None] > 1000, 1.01 * tokens, tokens), after
    ),
    StepDiffersForManyHeads=lambda layer, x, before, tokens, after: (
        tokens * (1 + 0.01 * (layer.size.heads > 4)), after
    ),
    StopsCountingAt1000=counting(lambda count: count.clamp_max(1000)),
    KeepsStateInBf16=in_bf16,
    RoundsStepsUnderAutocast=lambda layer, x, before, tokens, after: (
        tokens, (*after[:-1], after[-1].bfloat16().to(after[-1].dtype) if autocast() else after[-1])
    ),
    IgnoresPositionsInSteps=counting(torch.zeros_like))
steps("side-effect-free step", RoundsStateInBf16=in_bf16,
    WritesStateWithoutGradients=writing_to_state,
    CountsFirstSample=counting(lambda count: count[:1].expand_as(count)),
    CountsStepsInModule=lambda layer, x, before, *results: (CALLS.append(len(x)), results)[1])


def with_cache(size, grows):
    def start(self, batch):
        return *Recurrent.start(self, batch), self.zero_state(batch, size(self), self.size.dim)

    def step(self, x, state):
        *inner, cache = state
        tokens, after = Recurrent.step(self, x, tuple(inner))
        cache = torch.cat([cache, x[:, None]], dim=1) if grows(inner[0]) else cache
        return tokens, (*after, cache)

    return {"start": start, "step": step}


variant("constant-size state", "AllocatesCacheForMaxLen", Recurrent,
    **with_cache(lambda layer: layer.size.max_len, lambda count: False))
variant("constant-size state", "StateGrowsAfter200", Recurrent,
    **with_cache(lambda layer: 0, lambda count: count.max() > 200))
variant("prefill equals steps", "PrefillForgetsItsState", Recurrent,
    attend_after=lambda self, q, k, v, real, state: Recurrent.attend_after(
        self, q, k, v, real, state if q.shape[2] == 1 else (torch.zeros_like(state[0]),)
    ))
variant("prefill equals steps", "PrefillCountsPadding", Recurrent,
    attend_after=lambda self, q, k, v, real, state: Recurrent.attend_after(
        self, q, k, v, None, state
    ))
variant("prefill equals steps", "ForgetsPromptOf1000Tokens", Recurrent,
    attend_after=lambda self, q, k, v, real, state: Recurrent.attend_after(
        self, q, k if k.shape[2] < 1000 else 0 * k, v, real, state
    ))


# Cost.
def of_every_pair(h):
    return h.y + 0 * (h.q[:, :1] @ h.k[:, :1].mT).sum(-1, keepdim=True)


outputs("linear FLOPs", LEAN,
    QuadraticWithPaddingAbove8192=padded(lambda h: h.y if h.n <= 8192 else of_every_pair(h)),
    QuadraticInEvaluationAbove8192=lambda h: (
        h.y if h.n <= 8192 or h.layer.training else of_every_pair(h)
    ))
outputs("linear memory", LEAN, AllocatesEveryPairAbove8192=lambda h: (
    h.y if h.n <= 8192 else h.y * torch.ones(h.n, h.m, dtype=torch.bool).any(1)[:, None]
))
