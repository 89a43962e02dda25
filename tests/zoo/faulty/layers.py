"""Defects of the call of a layer, of its losses, its state and its constructor."""

from dataclasses import replace

import torch
from torch import nn

from tests.zoo.faulty.correct import (
    SELF_ONLY,
    TRAITS,
    Bidirectional,
    CausalOnly,
    Correct,
    Recurrent,
)
from tests.zoo.faulty.heads import Scaled
from tests.zoo.faulty.planted import arguments, convolves, fails, tokens_where, writes
from zoo.contract import Attended, Attention, Identity
from zoo.projection import ShortConvolution, convolve
from zoo.variants.soft import Soft


def first_real(mask):
    """As many real tokens, before all padding."""
    return torch.arange(mask.shape[1]) < mask.sum(1, keepdim=True)


def before_max_len(layer, mask):
    """The last two positions of an input of `max_len` tokens."""
    n = mask.shape[1]
    return (torch.arange(n) >= n - 2) & (150 <= n == layer.size.max_len < 1000)


for name, check, base, change in (
    ("IgnoresContext", "cross-attention", Correct,
     lambda layer, x, context, mask: (x, x, None if context is not x else mask)),
    ("IgnoresContextInTraining", "cross-attention", Bidirectional,
     lambda layer, x, context, mask: (
         (x, x, mask if context is x else None) if layer.training else (x, context, mask)
     )),
    ("IgnoresContextOfSameLength", "cross-attention", Bidirectional,
     lambda layer, x, context, mask: (x, context if context.shape != x.shape else x, mask)),
    ("IgnoresMaskOfContextInTraining", "cross-attention", Bidirectional,
     lambda layer, x, context, mask: (
         x, context, None if layer.training and context is not x else mask
     )),
    ("PadsContextOnTheRight", "cross-attention", Bidirectional,
     lambda layer, x, context, mask: (
         x, context, mask if context is x or mask is None else first_real(mask)
     )),
    ("IgnoresMaskOfLongContext", "cross-attention", Bidirectional,
     lambda layer, x, context, mask: (
         x, context, mask if context is x or context.shape[1] <= 64 else None
     )),
    ("RepeatsMaskOf32Samples", "batch independence, large batches", Bidirectional,
     lambda layer, x, context, mask: (
         x, context, None if mask is None else mask[torch.arange(len(x)) % 32]
     )),
    ("IgnoresMaskBeforeMaxLen", "padding invariance", Bidirectional,
     lambda layer, x, context, mask: (
         x, context, mask if mask is None else mask | before_max_len(layer, mask)
     )),
    ("MasksInEvaluationOnly", "padding invariance", Correct,
     lambda layer, x, context, mask: (x, context, None if layer.training else mask)),
    ("IgnoresMaskBeyond1000Tokens", "padding invariance, long inputs", Bidirectional,
     lambda layer, x, context, mask: (x, context, mask if x.shape[1] <= 1000 else None)),
):  # fmt: skip
    arguments(name, check, base, change)


def first(tokens):
    return tokens[:, :1]


def mixed(tokens):
    """Each sample with a part of another one."""
    return tokens + 0.01 * tokens.roll(1, 0)


AUTOCAST, BF16 = "cpu", torch.bfloat16
for name, check, applies, change in (
    ("OneToken", "lengths", lambda *_: True, first),
    ("OneTokenWithMask", "lengths", lambda layer, x, context, mask: mask is not None, first),
    ("OneTokenInEvaluation", "lengths", lambda layer, *_: not layer.training, first),
    ("NaNBeyond1000Tokens", "lengths", lambda layer, x, *_: x.shape[1] > 1000,
     lambda tokens: tokens * float("nan")),
    ("OneTokenOfContext", "cross-attention",
     lambda layer, x, context, mask: context is not x, first),
    ("ScalesInTrainingWithMask", "train equals eval",
     lambda layer, x, context, mask: layer.training and mask is not None,
     lambda tokens: 1.1 * tokens),
    ("Bf16OutputTooSmall", "precisions", lambda layer, x, *_: x.dtype == BF16,
     lambda tokens: 0.8 * tokens),
    ("AutocastOutputTooSmall", "precisions", lambda *_: torch.is_autocast_enabled(AUTOCAST),
     lambda tokens: 0.8 * tokens),
    ("CoupledInBatchesOf8", "batch independence",
     lambda layer, x, *_: layer.training and len(x) == 8, mixed),
    ("CoupledAbove32", "batch independence, large batches",
     lambda layer, x, *_: layer.training and len(x) > 32, mixed),
    ("CoupledAbove32WithPadding", "batch independence, large batches",
     lambda layer, x, context, mask: mask is not None and len(x) > 32, mixed),
    ("DiffersWithoutGradients", "no_grad equals grad", lambda *_: not torch.is_grad_enabled(),
     lambda tokens: 1.01 * tokens),
    ("DiffersInInferenceModeWithPadding", "no_grad equals grad",
     lambda layer, x, context, mask: torch.is_inference_mode_enabled() and mask is not None,
     lambda tokens: 1.01 * tokens),
    ("DiffersWithoutGradientsBeyond1000", "no_grad equals grad",
     lambda layer, x, *_: not torch.is_grad_enabled() and x.shape[1] > 1000,
     lambda tokens: 1.01 * tokens),
    ("CoupledAbove150", "batch independence, large batches",
     lambda layer, x, *_: layer.training and len(x) > 150, mixed),
):  # fmt: skip
    fails(check)(tokens_where(name, applies, change))


@fails("precisions")
class ReturnsFp32(Bidirectional):
    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        return Attended(tokens.to(torch.promote_types(tokens.dtype, torch.float32)))


@fails("truncation equivalence")
class RotatesByPaddedPosition(Correct):
    def _heads(self, query, context, of_query, of_key):
        return super()._heads(query, context, None, None)


@fails("position sensitivity")
class IgnoresRotaryPositions(Bidirectional):
    def apply_rotary(self, x, positions=None):
        return x


@fails("gradients")
class NegatesGradients(Correct):
    """The gradients of its query projection have the wrong sign."""

    def _project(self, x, context, mask):
        _, k, v = super()._project(x, context, mask)
        weight, bias = (Scaled.apply(p, -1) for p in (self.query.weight, self.query.bias))
        return self._split(nn.functional.linear(x, weight, bias)), k, v


@fails("rejects cross-attention")
class AcceptsContextWithoutClaim(Attention):
    traits = SELF_ONLY

    def __init__(self, size):
        super().__init__(size)
        self.map = nn.Linear(size.dim, size.dim)

    def forward(self, x, context, mask):
        return Attended(self.map(x))


@fails("rejects causal")
class BuildsCausalWithoutClaim(Bidirectional):
    def __init__(self, size):
        super().__init__(replace(size, causal=False))


@fails("rejects bidirectional")
class BuildsBidirectionalWithoutClaim(CausalOnly):
    def __init__(self, size):
        super().__init__(replace(size, causal=True))


@fails("rejects non-boolean mask")
class AcceptsFloatMask(Bidirectional):
    def __call__(self, x, context=None, mask=None):
        return super().__call__(x, context, None if mask is None else mask.bool())


class WithoutCall(Attention):
    """Without what a call does for all variants."""

    def __call__(self, x, context=None, mask=None):
        return nn.Module.__call__(self, x, x if context is None else context, mask)


@fails("padding invariance")
class MultipliesNaNByZero(WithoutCall, Bidirectional):
    pass


@fails("gradients, backward under autocast")
class RoundsProductsOfGradients(WithoutCall, Soft):
    pass


@fails("declared losses")
class ReturnsUndeclaredLoss(Correct):
    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        return Attended(tokens, {"secret": tokens.square().mean()} if self.training else {})


@fails("padding invariance")
class AveragesLossOverPadding(Correct):
    traits = replace(TRAITS, losses=("size",))

    def forward(self, x, context, mask):
        losses = {"size": self.out(context).square().mean()} if self.training else {}
        return Attended(super().forward(x, context, mask).tokens, losses)


@fails("declared losses")
class ReturnsLossInEvaluation(Bidirectional):
    traits = replace(TRAITS, causal=False, losses=("size",))

    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        real = tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0)
        return Attended(tokens, {"size": real.square().mean()})


@fails("declared losses")
class ReturnsLossPerSample(ReturnsLossInEvaluation):
    def forward(self, x, context, mask):
        tokens = super().forward(x, context, mask).tokens
        return Attended(tokens, {"size": tokens.square().mean((1, 2))} if self.training else {})


@fails("gradients")
class HalvesGradientOfLoss(ReturnsLossInEvaluation):
    """The gradient of its loss is half of what it should be."""

    def forward(self, x, context, mask):
        tokens, losses = super().forward(x, context, mask)
        halved = {name: (loss + loss.detach()) / 2 for name, loss in losses.items()}
        return Attended(tokens, halved if self.training else {})


@fails("auxiliary loss does not dominate")
class ReturnsLargeLoss(ReturnsLossInEvaluation):
    def forward(self, x, context, mask):
        tokens, losses = super().forward(x, context, mask)
        return Attended(tokens, {"size": 1e4 * losses["size"]} if self.training else {})


@fails("all parameters get gradients")
class MultipliesByZero(Bidirectional):
    def __init__(self, size):
        super().__init__(size)
        self.spare = nn.Parameter(torch.ones(size.head_dim))

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + 0 * self.spare


@fails("side-effect-free forward")
class WritesBuffer(Correct):
    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, context, mask):
        self.calls = self.calls + 1
        return super().forward(x, context, mask)


@fails("side-effect-free forward")
class AppendsToList(Correct):
    def __init__(self, size):
        super().__init__(size)
        self.log = []

    def forward(self, x, context, mask):
        self.log.append(x.shape)
        return super().forward(x, context, mask)


for name, change in (
    ("WritesToInput", lambda x, *_: x.data.mul_(2)),
    ("WritesInputWithoutGradients",
     lambda x, context, mask: x.mul_(2) if not torch.is_grad_enabled() else None),
    ("WritesContextWithoutGradients",
     lambda x, context, mask: (
         context.mul_(2) if not torch.is_grad_enabled() and context is not x else None
     )),
    ("WritesMaskWithoutGradients",
     lambda x, context, mask: (
         None if mask is None or torch.is_grad_enabled() else mask.fill_(True)
     )),
    ("FillsMaskOfPaddedSample",
     lambda x, context, mask: None if mask is None else mask[:, 0].logical_or_(~mask.any(1))),
    ("SetsSeed", lambda *_: torch.manual_seed(0)),
):  # fmt: skip
    writes(name, Bidirectional, change)


def tracking(name, applies):
    """Tracks gradients only where `applies(layer, x)`."""

    def forward(self, x, context, mask):
        with torch.set_grad_enabled(torch.is_grad_enabled() and applies(self, x)):
            return Bidirectional.forward(self, x, context, mask)

    fails("all parameters get gradients")(type(name, (Bidirectional,), {"forward": forward}))


tracking("NeedsGradientOfTokens", lambda layer, x: x.requires_grad)
tracking("NeedsGradientOfWeights", lambda layer, x: layer.out.weight.requires_grad)


class Ahead(ShortConvolution):
    """Its causal convolution reads the next token."""

    def __init__(self, size, width):
        super().__init__(size, width)
        self.before -= int(size.causal and self.taps is not None)


class OverPadding(ShortConvolution):
    """Its convolution does not leave padding out."""

    def forward(self, u, mask=None):
        return super().forward(u)


class Unsaved(ShortConvolution):
    """Its taps are no parameter."""

    def __init__(self, size, width):
        super().__init__(size, width)
        self.parts = [] if self.taps is None else [self.taps.detach()]
        self.taps = None

    def forward(self, u, mask=None):
        for taps in self.parts:
            u = nn.functional.silu(convolve(u, taps.to(u.dtype), self.before, mask))
        return u


for name, check, convolution in (
    ("ConvolutionReadsNextToken", "causality", Ahead),
    ("ConvolutionReadsPadding", "padding invariance", OverPadding),
    ("TapsOutsideStateDict", "state_dict round trip", Unsaved),
):
    convolves(name, check, Correct, convolution)


class Activated(nn.Linear):
    """A linear layer with an activation of its own, behind which an adapter would add."""

    def forward(self, input):
        return nn.functional.silu(super().forward(input))


@fails("linear layers are called")
class ActivatesInsideLinear(Bidirectional):
    def __init__(self, size):
        super().__init__(size)
        self.query = Activated(size.dim, size.dim)


def reads_weight(name, base, applies):
    """A variant that multiplies by the weight of its output projection, where `applies(n)`."""

    def _merge(self, x, heads):
        if not applies(heads.shape[2]):
            return base._merge(self, x, heads)
        merged = heads.transpose(1, 2).flatten(-2)
        return nn.functional.linear(merged, self.out.weight, self.out.bias)

    fails("linear layers are called")(type(name, (base,), {"_merge": _merge}))


reads_weight("ReadsWeight", Bidirectional, lambda n: True)
reads_weight("ReadsWeightInSteps", Recurrent, lambda n: n == 1)


@fails("state_dict round trip")
class WeightOutsideStateDict(Correct):
    def __init__(self, size):
        super().__init__(size)
        self.secret = torch.randn(size.head_dim)

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) + self.secret.to(v.dtype)


class EqualsSoftmaxAfterPreparation(Bidirectional):
    """Correct: equals softmax where its parameter is 1, as `prepare` sets it."""

    identities = (
        Identity(
            other="softmax", where="scale = 1", other_options={"backend": "sdpa"}, exact=True,
            prepare=lambda layer, other: layer.scale.fill_(1),
        ),
    )  # fmt: skip

    def __init__(self, size):
        super().__init__(size)
        self.scale = torch.nn.Parameter(torch.tensor(1.1))

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v * self.scale, mask)
