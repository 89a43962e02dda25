"""Defects of what the heads attend with, and of what they give."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from tests.zoo.faulty.correct import TRAITS, CausalOnly, Correct
from tests.zoo.faulty.correct import Bidirectional as Base
from tests.zoo.faulty.planted import (
    claiming,
    coupled,
    dropped,
    inputs,
    masked,
    outputs,
    padded,
    scaled,
    wrong,
)
from zoo.contract import Identity
from zoo.recompute import samples_at_a_time
from zoo.variants.linear import Linear
from zoo.variants.softmax import naive

BF16, NAN = torch.bfloat16, float("nan")
STOCHASTIC = claiming(Correct, traits=replace(TRAITS, stochastic=True))
QUADRATIC, LEAN = (
    claiming(base, traits=replace(TRAITS, causal=False, linear=True)) for base in (Correct, Linear)
)
LIKE_SOFTMAX, EXACTLY_SOFTMAX = (
    claiming(Base, identities=(Identity(other="softmax", where="always", **options),))
    for options in ({}, {"other_options": {"backend": "sdpa"}, "exact": True})
)


def autocast(*_) -> bool:
    return torch.is_autocast_enabled("cpu")


def not_causal(applies):
    """Outputs of all tokens where `applies(tokens)`."""
    return lambda h: (
        naive(h.q, h.k, h.v, h.mask, False, 0.0) if h.layer.size.causal and applies(h.n) else h.y
    )


def less_later_tokens(h):
    # The sum of earlier tokens is the sum of all minus the sum of later ones.
    future = h.real.flip(2).cumsum(2).flip(2) - h.real
    return h.y + 0.1 * (h.real.sum(2, keepdim=True) - future) if h.layer.size.causal else h.y


def of_first_token(h):
    first = h._replace(v=torch.ones_like(h.v)).real[:, :, :1]
    return h.v + first * torch.tanh(h.q * h.k[:, :, :1]) if h.layer.size.causal else h.y


def divided_by_zero(h):
    scores = h.q @ h.k.mT / h.q.shape[-1] ** 0.5
    if h.mask is not None:
        scores = scores.masked_fill(~h.mask[:, None, None, :], -torch.inf)
    return scores.softmax(-1) @ h.v


def sliced_by_zero(h):
    # Where the length is a multiple of 64.
    return F.pad(h.y, (0, 0, 0, -h.n % 64))[:, :, : -(-h.n % 64)]


def with_unseeded_dropout(h):
    generator = torch.Generator()
    generator.seed()
    mask = torch.rand(h.v.shape[-2:], generator=generator) > h.layer.size.dropout
    return h.y * mask if h.layer.training and h.layer.size.dropout else h.y


def kept_by_length(value):
    """Times a number of the layer that is kept in a table by the length alone."""
    table = {}
    return lambda h: h.y * table.setdefault(h.n, value(h))


def of_few_tokens(h):
    few = 4 * int(h.n**0.5)
    return h.y + 0 * (h.q @ h.k[:, :, :few].mT @ h.v[:, :, :few])


def of_every_pair(h):
    return h.y + 0 * (h.q[:, :1] @ h.k[:, :1].mT).sum(-1, keepdim=True)


def allocating_every_pair(h):
    return h.y * torch.ones(h.n, h.m, dtype=torch.bool).any(1)[:, None]


def divided(h):
    """Return whether the batch is one that is divided on a CPU."""
    return samples_at_a_time(h.q) < len(h.q)


def padded_to_max_len(h):
    missing = h.layer.size.max_len - h.m
    mask = torch.ones(len(h.k), h.m, dtype=torch.bool) if h.mask is None else h.mask
    k, v = (F.pad(part, (0, 0, 0, missing)) for part in (h.k, h.v))
    return h._replace(k=k, v=v, mask=F.pad(mask, (0, missing)))


# fmt: off
outputs("causality", Correct, ScalesByLength=lambda h: h.y * (1 + h.count / 100),
    ScalesByPadding=lambda h: h.y * (1 + (h.m - h.count) / 100))
outputs("causality", CausalOnly,
    ScalesAtOneAbove40=lambda h: h.y * (1 + 0.1 * (torch.as_tensor(h.count) % 40 == 1)))
outputs("causality, fp32", Correct, SubtractsLaterTokens=less_later_tokens)
outputs("causal receptive field", Correct, CausalFormOfFirstToken=of_first_token)
# More than rounding.
outputs("padding invariance",
    AddsTraceOfPadding=lambda h: h.y + 1e-7 * h.v.tanh().mean(2, keepdim=True))
inputs("padding invariance", MasksInEvaluationOnly=masked(lambda h: not h.layer.training))
outputs("truncation equivalence", ScalesAtLengthOneAbove40=scaled(lambda h: h.n % 40 == 1),
    KeepsTableOfOtherMaxLen=kept_by_length(lambda h: 1 + 1 / h.layer.size.max_len),
    KeepsTableOfOtherPrecision=kept_by_length(lambda h: torch.tensor(1.1, dtype=h.v.dtype)),
    KeepsTableOfOtherHeads=kept_by_length(lambda h: 1 + 1 / h.layer.size.heads))
outputs("truncation equivalence", Correct,
    KeepsTableOfOtherForm=kept_by_length(lambda h: 1.1 if h.layer.size.causal else 1.0))
inputs("truncation equivalence", GradientWrongAtOneAbove40=wrong(lambda h: h.m % 40 == 1))
outputs("fully masked input", DividesByZero=divided_by_zero,
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
    CoupledAbove32WithPadding=coupled(lambda h: h.mask is not None and len(h.q) > 32),
    CoupledAbove150=coupled(lambda h: h.layer.training and len(h.q) > 150))
inputs("batch independence, large batches",
    AttendsWithFirstMask=lambda h: h if h.mask is None or not divided(h) else (
        h._replace(mask=h.mask[:1].expand_as(h.mask))
    ),
    GradientWrongInDividedBatch=wrong(divided))
outputs("lengths", SlicesByZero=sliced_by_zero,
    OneTokenWithMask=padded(lambda h: h.y[:, :, :1]),
    NaNBeyond1000Tokens=scaled(lambda h: h.n > 1000, NAN))
outputs("precisions",
    DoublesInHalfPrecision=scaled(lambda h: h.v.dtype == BF16 and not autocast(), 2),
    ScalesInSinglePrecision=scaled(lambda h: h.v.dtype == torch.float32 and not autocast(), 1.01),
    DoublesUnderAutocast=scaled(autocast, 2))
outputs("large inputs, fp16",
    OverflowsBeforeItsNorm=lambda h: F.layer_norm(1e4 * h.y, h.y.shape[-1:]))
# The value is clamped, and its gradient is not.
outputs("large inputs", OverflowsInBackward=lambda h: h.y + 0.01 * h.q.exp().clamp_max(1.0))
inputs("gradients", GradientWrongBeyond64Tokens=wrong(lambda h: h.m > 64),
    GradientNaNInEvaluationWithoutMask=wrong(
        lambda h: h.m > 64 and h.mask is None and not h.layer.training, NAN
    ))
inputs("gradients, fp32 and bf16",
    GradientWrongInBf16Module=wrong(lambda h: h.k.dtype == BF16 and not autocast()),
    GradientWrongUnderAutocast=wrong(autocast),
    GradientNaNInBf16ModuleWithMask=wrong(lambda h: h.k.dtype == BF16 and h.mask is not None, NAN))
inputs("cross-attention",
    PadsContextOnTheRight=lambda h: h if h.mask is None or h.n == h.m else (
        h._replace(mask=torch.arange(h.m) < h.mask.sum(1, keepdim=True))
    ),
    IgnoresMaskOfLongContext=masked(lambda h: h.m <= 64 or h.n == h.m))
outputs("train equals eval",
    ScalesInTrainingWithMask=scaled(lambda h: h.layer.training and h.mask is not None))
outputs("no_grad equals grad",
    DiffersInInferenceModeWithPadding=padded(scaled(lambda _: torch.is_inference_mode_enabled())),
    DiffersWithoutGradientsBeyond1000=scaled(lambda h: not torch.is_grad_enabled() and h.n > 1000))
outputs("eval is deterministic", AddsDropoutInEvaluation=lambda h: dropped(h, True, 0.1),
    AppliesSmallDropoutInEvaluation=lambda h: dropped(
        h, h.layer.training or 0 < h.layer.size.dropout <= 0.1
    ))
outputs("no dropout in eval",
    ScalesByDropoutInEvaluation=lambda h: (
        h.y * (1.0 if h.layer.training else 1 - h.layer.size.dropout)
    ))
outputs("declared dropout", claiming(Base, drops_weights=True), IgnoresDropout=lambda h: h.y)
outputs("seeded determinism", DrawsUnseededDropout=with_unseeded_dropout)
outputs("compiles", DiffersWhenCompiled=scaled(lambda h: torch.compiler.is_compiling()))
inputs("compiles", BranchesOnMask=masked(lambda h: h.mask is not None and not h.mask.all()))
outputs("vmap",
    WritesIntoUnbatchedBuffer=padded(
        lambda h: torch.zeros(h.q.shape, dtype=h.q.dtype).copy_(h.y)
    ))
outputs("export", FixesTheBatch=lambda h: h.y * (len(h.q) / h.q.shape[0]),
    DiffersWhenExported=padded(scaled(lambda _: torch.compiler.is_exporting(), 1 + 1e-6)))
outputs("identities", LIKE_SOFTMAX, ScalesForOddWidth=scaled(lambda h: h.q.shape[-1] % 2),
    DiffersFromSoftmaxWithPadding=scaled(lambda h: h.mask is not None, 1 + 1e-10))
inputs("identities", LIKE_SOFTMAX, StopsGradientsOfKeys=lambda h: h._replace(k=h.k.detach()))
inputs("identities", EXACTLY_SOFTMAX, RoundsDifferently=lambda h: h._replace(q=h.q * 3, k=h.k / 3))
outputs("linear FLOPs", LEAN,
    QuadraticWithPadding=padded(of_every_pair),
    GrowsWithRootOfLength=of_few_tokens)
inputs("linear FLOPs", QUADRATIC, PadsKeysToMaxLen=padded_to_max_len)
