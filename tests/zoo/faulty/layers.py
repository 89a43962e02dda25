"""Defects of the call of a layer, of its losses, its state and its constructor."""

from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import linear, silu

from tests.zoo.faulty.correct import SELF_ONLY, TRAITS, CausalOnly, Correct, Recurrent
from tests.zoo.faulty.correct import Bidirectional as Base
from tests.zoo.faulty.planted import Sloped, arguments, built, variant, writes
from zoo.contract import Attended, Attention, Identity
from zoo.variants.soft import Soft

# fmt: off
arguments("cross-attention",
    IgnoresContextInTraining=lambda layer, x, context, mask: (
        (x, x, mask if context is x else None) if layer.training else (x, context, mask)
    ),
    IgnoresContextOfSameLength=lambda layer, x, context, mask: (
        x, context if context.shape != x.shape else x, mask
    ))


def in_fp32(self, x, context, mask):
    tokens = Base.forward(self, x, context, mask).tokens
    return Attended(tokens.to(torch.promote_types(tokens.dtype, torch.float32)))


def with_negated_gradients(self, x, context, mask):
    _, k, v = Correct._project(self, x, context, mask)
    weight, bias = (Sloped.apply(p, torch.neg) for p in (self.query.weight, self.query.bias))
    return self._split(linear(x, weight, bias)), k, v


def bare_call(self, x, context=None, mask=None):
    # Without what a call does for all variants.
    return nn.Module.__call__(self, x, x if context is None else context, mask)


ReturnsFp32 = variant("precisions", "ReturnsFp32", Base, forward=in_fp32)
variant("gradients", "NegatesGradientsOfQueries", Correct, _project=with_negated_gradients)
variant("truncation equivalence", "RotatesByPaddedPosition", Correct,
    _heads=lambda self, *parts: Correct._heads(self, *parts[:2], None, None))
variant("position sensitivity", "IgnoresRotaryPositions", Base,
    apply_rotary=lambda self, x, positions=None: x)
variant("rejects cross-attention", "AcceptsContextWithoutClaim", Attention, traits=SELF_ONLY,
    __init__=built(Attention, lambda self, size: {"map": nn.Linear(size.dim, size.dim)}),
    forward=lambda self, x, context, mask: Attended(self.map(x)), __call__=bare_call)
variant("rejects causal", "BuildsCausalWithoutClaim", Base,
    __init__=lambda self, size: Base.__init__(self, replace(size, causal=False)))
variant("rejects bidirectional", "BuildsBidirectionalWithoutClaim", CausalOnly,
    __init__=lambda self, size: CausalOnly.__init__(self, replace(size, causal=True)))
variant("rejects non-boolean mask", "AcceptsFloatMask", Base,
    __call__=lambda self, x, context=None, mask=None: Base.__call__(
        self, x, context, None if mask is None else mask.bool()
    ))
variant("padding invariance", "MultipliesNaNByZero", Base, __call__=bare_call)
variant("gradients, backward under autocast", "RoundsProductsOfGradients", Soft,
    __call__=bare_call)


class Lossy(Base):
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
variant("declared losses", "ReturnsLossPerSample", Lossy,
    found=lambda self, squares: {"size": squares.mean((1, 2))} if self.training else {})
variant("gradients", "HalvesGradientOfLoss", Lossy,
    found=in_training(lambda loss: {"size": (loss + loss.detach()) / 2}))
variant("auxiliary loss does not dominate", "ReturnsLargeLoss", Lossy,
    found=in_training(lambda loss: {"size": 1e4 * loss}))
variant("all parameters get gradients", "MultipliesByZero", Base,
    __init__=built(Base, lambda _, size: {"spare": nn.Parameter(torch.ones(size.head_dim))}),
    attend=lambda self, *heads: Base.attend(self, *heads) + 0 * self.spare)


class Logging(Base):
    """Correct: it has a list and a buffer that nothing writes to."""

    def __init__(self, size):
        super().__init__(size)
        self.log = []
        self.register_buffer("calls", torch.zeros(()))


writes(
    "side-effect-free forward", Logging,
    AppendsToList=lambda layer, *_: layer.log.append(1),
    WritesBuffer=lambda layer, *_: setattr(layer, "calls", layer.calls + 1),
    WritesToInput=lambda layer, x, *_: x.data.mul_(2),
    WritesContextWithoutGradients=lambda layer, x, context, mask: (
        context.mul_(2) if not torch.is_grad_enabled() and context is not x else None
    ),
    FillsMaskOfPaddedSample=lambda layer, x, context, mask: (
        None if mask is None else mask[:, 0].logical_or_(~mask.any(1))
    ),
    SetsSeed=lambda *_: torch.manual_seed(0),
)  # fmt: skip


def tracking(name, applies):
    """Tracks gradients only where `applies(layer, x)`."""

    def forward(self, x, context, mask):
        with torch.set_grad_enabled(torch.is_grad_enabled() and applies(self, x)):
            return Base.forward(self, x, context, mask)

    variant("all parameters get gradients", name, Base, forward=forward)


tracking("NeedsGradientOfWeights", lambda layer, x: layer.out.weight.requires_grad)


class Activated(nn.Linear):
    def forward(self, input):
        return silu(super().forward(input))


def reading_weight(self, x, heads):
    if heads.shape[2] > 1:
        return Recurrent._merge(self, x, heads)
    return linear(heads.transpose(1, 2).flatten(-2), self.out.weight, self.out.bias)


variant("linear layers are called", "ActivatesInsideLinear", Base,
    __init__=built(Base, lambda _, size: {"query": Activated(size.dim, size.dim)}))
variant("linear layers are called", "ReadsWeightInSteps", Recurrent, _merge=reading_weight)
# Behind a short convolution, as its taps would be.
variant("state_dict round trip", "NumbersOutsideStateDict", Correct,
    __init__=built(Correct, lambda _, size: {
        "secret": size.short_conv * torch.randn(size.head_dim)
    }),
    attend=lambda self, *heads: Correct.attend(self, *heads) + self.secret.to(heads[2].dtype))


class EqualsSoftmaxAfterPreparation(Base):
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
