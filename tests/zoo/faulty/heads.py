"""Defects of what the heads attend with, and of what they give."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from tests.zoo.faulty.correct import TRAITS, Bidirectional, CausalOnly, Correct
from tests.zoo.faulty.planted import claiming, inputs, outputs
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
    claiming(Bidirectional, identities=(Identity(other="softmax", where="always", **options),))
    for options in ({}, {"other_options": {"backend": "sdpa"}, "exact": True})
)


def autocast() -> bool:
    return torch.is_autocast_enabled("cpu")


def not_causal(applies, heads=slice(None), tokens=slice(None)):
    """Outputs that are not causal in `heads` and at `tokens` where `applies(layer, q)`."""

    def change(h):
        if not (h.layer.size.causal and applies(h.layer, h.q)):
            return h.y
        y = h.y.clone()
        y[:, heads, tokens] = naive(h.q, h.k, h.v, h.mask, False, 0.0)[:, heads, tokens]
        return y

    return change


def less_later_tokens(h):
    """Computes the sum of earlier tokens as the sum of all minus the sum of later ones."""
    future = h.real.flip(2).cumsum(2).flip(2) - h.real
    return h.y + 0.1 * (h.real.sum(2, keepdim=True) - future) if h.layer.size.causal else h.y


def of_first_token(h):
    first = h._replace(v=torch.ones_like(h.v)).real[:, :, :1]
    return h.v + first * torch.tanh(h.q * h.k[:, :, :1]) if h.layer.size.causal else h.y


def divided_by_zero(h):
    """Without a real key its weights are 0 / 0."""
    scores = h.q @ h.k.mT / h.q.shape[-1] ** 0.5
    if h.mask is not None:
        scores = scores.masked_fill(~h.mask[:, None, None, :], -torch.inf)
    return scores.softmax(-1) @ h.v


def sliced_by_zero(h):
    """Pads to blocks of 64 and removes the rest with a slice that is wrong for a rest of 0."""
    surplus = -h.q.shape[2] % 64
    return F.pad(h.y, (0, 0, 0, surplus))[:, :, :-surplus]


def overflowing(h):
    """Exponentials without subtracting a maximum."""
    weights = (h.q @ h.k.mT).exp()
    weights = weights if h.mask is None else weights * h.mask[:, None, None, :]
    return weights @ h.v / weights.sum(-1, keepdim=True).clamp_min(1e-30)


def unseeded() -> torch.Generator:
    """A generator that cannot be seeded from outside."""
    generator = torch.Generator()
    generator.seed()
    return generator


def with_unseeded_dropout(h):
    p = h.layer.size.dropout
    mask = torch.rand(h.v.shape[-2:], generator=unseeded()) > p
    return h.y * mask if h.layer.training and p else h.y


def scaled_for_even_width(h):
    """Weights with a scale that is right for keys of an even width."""
    width = h.q.shape[-1]
    return naive(h.q * (width / (width // 2 * 2)) ** 0.5, h.k, h.v, h.mask, False, 0.0)


def kept_by_length(value):
    """Times a number of the layer that is kept in a table by the length alone."""
    table = {}
    return lambda h: h.y * table.setdefault(h.q.shape[2], value(h))


def divided_with_first_mask(h):
    """Attends in parts of a batch, with the mask of the first one in all."""
    size = samples_at_a_time(h.q)
    if h.mask is None or size >= len(h.q):
        return h.y
    parts = zip(h.q.split(size), h.k.split(size), h.v.split(size), strict=True)
    return torch.cat([naive(q, k, v, h.mask[: len(q)], False, 0.0) for q, k, v in parts])


def of_few_tokens(h):
    """Each token attends to as many tokens as the root of the length."""
    few = 4 * int(h.q.shape[2] ** 0.5)
    return h.y + 0 * (h.q @ h.k[:, :, :few].mT @ h.v[:, :, :few])


def of_every_pair(h):
    """With a product of all pairs of tokens, in one of the heads."""
    return h.y + 0 * (h.q[:, :1] @ h.k[:, :1].mT).sum(-1, keepdim=True)


def allocating_every_pair(h):
    """Times ones, from few operations and an allocation for all pairs."""
    return h.y * torch.ones(h.q.shape[2], h.k.shape[2], dtype=torch.bool).any(1)[:, None]


for name, check, base, change in (
    ("ScalesByMaximumOfAllTokens", "causality", Correct,
     lambda h: h.y * (1 + h.real.abs().amax((-2, -1), keepdim=True))),
    ("ScalesByLength", "causality", Correct, lambda h: h.y * (1 + h.count / 100)),
    ("ScalesByPadding", "causality", Correct,
     lambda h: h.y if h.mask is None else h.y * (1 + h._replace(mask=~h.mask).count / 100)),
    ("SubtractsLaterTokens", "causality, fp32", Correct, less_later_tokens),
    ("LeaksBeyond1000Tokens", "causality, long inputs", Correct,
     not_causal(lambda _, q: q.shape[2] > 1000)),
    ("LeaksWithOneHead", "causality", Correct, not_causal(lambda _, q: q.shape[1] == 1)),
    ("LeaksFromThirdHeadOn", "causality", Correct, not_causal(lambda *_: True, slice(2, None))),
    ("LeaksInTrainingWithDropout", "causality", Correct,
     not_causal(lambda layer, _: layer.training and layer.size.dropout > 0)),
    ("LeaksBeforeMaxLen", "causality", Correct,
     not_causal(lambda layer, q: 150 <= q.shape[2] == layer.size.max_len < 1000,
                tokens=slice(-2, None))),
    ("ScalesAtOneAbove40", "causality", CausalOnly,
     lambda h: h.y * (1 + 0.1 * (torch.as_tensor(h.count) % 40 == 1))),
    ("CausalFormWithoutMixing", "causal receptive field", Correct,
     lambda h: h.v + 0.1 * torch.tanh(h.q * h.k) if h.layer.size.causal else h.y),
    ("CausalFormOfFirstToken", "causal receptive field", Correct, of_first_token),
    # Padded keys remain in the denominator.
    ("MasksValuesOnly", "padding invariance", Correct,
     lambda h: naive(h.q, h.k, h.real, None, h.layer.size.causal, 0.0)),
    # The trace is far more than rounding.
    ("AddsTraceOfPadding", "padding invariance", Bidirectional,
     lambda h: h.y if h.mask is None else h.y + 1e-7 * h.v.tanh().mean(2, keepdim=True)),
    ("ScalesAtLengthOneAbove40", "truncation equivalence", Bidirectional,
     lambda h: h.y * (1.1 if h.q.shape[2] % 40 == 1 else 1.0)),
    ("KeepsTableOfOtherMaxLen", "truncation equivalence", Bidirectional,
     kept_by_length(lambda h: 1 + 1 / h.layer.size.max_len)),
    ("KeepsTableOfOtherPrecision", "truncation equivalence", Bidirectional,
     kept_by_length(lambda h: torch.tensor(1.1, dtype=h.v.dtype))),
    ("KeepsTableOfOtherHeads", "truncation equivalence", Bidirectional,
     kept_by_length(lambda h: 1 + 1 / h.layer.size.heads)),
    ("KeepsTableOfOtherForm", "truncation equivalence", Correct,
     kept_by_length(lambda h: 1.1 if h.layer.size.causal else 1.0)),
    ("DividesByZero", "fully masked input", Bidirectional, divided_by_zero),
    ("DividesByCountOfBatch", "fully masked input", Bidirectional,
     lambda h: h.y if h.mask is None else h.y * (h.mask.sum() / h.mask.sum()).to(h.v.dtype)),
    # The gradient of the division by 0 remains.
    ("ReplacesNaNInForwardOnly", "fully masked input", Bidirectional,
     lambda h: h.y if h.mask is None else torch.where(h.count > 0, h.y / h.count * h.count, 0.0)),
    ("InfersTheNumberOfSamples", "empty batch", Bidirectional,
     lambda h: h.y.reshape(-1, h.y[:1].numel()).reshape(h.y.shape)),
    ("ScalesByBatchSize", "batch independence", Bidirectional,
     lambda h: h.y * (1 + len(h.q) / 100)),
    ("ScalesByMeanOfBatchInTraining", "batch independence", STOCHASTIC,
     lambda h: h.y * (h.v.abs().mean() if h.layer.training else 1.0)),
    ("ScalesByCountOfBatchInTraining", "batch independence", STOCHASTIC,
     lambda h: h.y if h.mask is None or not h.layer.training else h.y * h.mask.to(h.v).mean()),
    ("DividesWithFirstMask", "batch independence, large batches", Bidirectional,
     divided_with_first_mask),
    ("DoublesInHalfPrecision", "precisions", Bidirectional,
     lambda h: h.y * (2 if h.v.dtype == BF16 and not autocast() else 1)),
    ("ScalesInSinglePrecision", "precisions", Bidirectional,
     lambda h: h.y * (1.01 if h.v.dtype == torch.float32 and not autocast() else 1)),
    ("DoublesUnderAutocast", "precisions", Bidirectional, lambda h: h.y * (1 + autocast())),
    ("SlicesByZero", "lengths", Bidirectional, sliced_by_zero),
    ("OverflowsForLargeInputs", "large inputs", Correct, overflowing),
    ("OverflowsBeforeItsNorm", "large inputs, fp16", Bidirectional,
     lambda h: F.layer_norm(1e4 * h.y, h.y.shape[-1:])),
    # The value is clamped, and its gradient is not.
    ("OverflowsInBackward", "large inputs", Bidirectional,
     lambda h: h.y + 0.01 * h.q.exp().clamp_max(1.0)),
    ("ScalesInTraining", "train equals eval", Bidirectional,
     lambda h: h.y * (1.1 if h.layer.training else 1.0)),
    ("AddsDropoutInEvaluation", "eval is deterministic", Correct, lambda h: F.dropout(h.y, 0.1)),
    ("AppliesGivenDropoutInEvaluation", "eval is deterministic", Bidirectional,
     lambda h: F.dropout(h.y, h.layer.size.dropout)),
    ("AppliesSmallDropoutInEvaluation", "eval is deterministic", Bidirectional,
     lambda h: F.dropout(h.y, h.layer.size.dropout,
                         h.layer.training or 0 < h.layer.size.dropout <= 0.1)),
    ("ScalesByDropoutInEvaluation", "no dropout in eval", Bidirectional,
     lambda h: h.y * (1.0 if h.layer.training else 1 - h.layer.size.dropout)),
    ("IgnoresDropout", "declared dropout", claiming(Bidirectional, drops_weights=True),
     lambda h: h.y),
    ("DrawsUnseededNoise", "seeded determinism", STOCHASTIC,
     lambda h: h.y + h.layer.training * torch.randn(h.v.shape, generator=unseeded()).to(h.v)),
    ("DrawsUnseededDropout", "seeded determinism", Bidirectional, with_unseeded_dropout),
    ("DiffersWhenCompiled", "compiles", Bidirectional,
     lambda h: h.y * (1.1 if torch.compiler.is_compiling() else 1.0)),
    # Its output buffer has room for one set of parameters.
    ("WritesIntoUnbatchedBuffer", "vmap", Bidirectional,
     lambda h: torch.zeros(h.q.shape, dtype=h.q.dtype).copy_(h.y)),
    ("WritesIntoUnbatchedBufferIfPadded", "vmap", Bidirectional,
     lambda h: h.y if h.mask is None else torch.zeros(h.q.shape, dtype=h.q.dtype).copy_(h.y)),
    # Its graph is for the number of samples of its export.
    ("FixesTheBatch", "export", Bidirectional, lambda h: h.y * (len(h.q) / h.q.shape[0])),
    ("DiffersWhenExported", "export", Bidirectional,
     lambda h: h.y * (1 + 1e-6 * (h.mask is not None and torch.compiler.is_exporting()))),
    ("ScalesForEvenWidth", "identities", LIKE_SOFTMAX, scaled_for_even_width),
    ("DiffersFromSoftmaxWithPadding", "identities", LIKE_SOFTMAX,
     lambda h: h.y if h.mask is None else h.y * (1 + 1e-10)),
    ("QuadraticWithLinearClaim", "linear FLOPs", QUADRATIC, lambda h: h.y),
    ("QuadraticWithPadding", "linear FLOPs", LEAN,
     lambda h: h.y if h.mask is None else of_every_pair(h)),
    ("QuadraticAbove5000", "linear FLOPs", LEAN,
     lambda h: h.y if h.k.shape[2] <= 5000 else of_every_pair(h)),
    ("GrowsWithRootOfLength", "linear FLOPs", LEAN, of_few_tokens),
    ("AllocatesEveryPair", "linear memory", LEAN, allocating_every_pair),
    ("AllocatesEveryPairAbove5000", "linear memory", LEAN,
     lambda h: h.y if h.k.shape[2] <= 5000 else allocating_every_pair(h)),
):  # fmt: skip
    outputs(name, check, base, change)


class Scaled(torch.autograd.Function):
    """The identity, with a gradient that is multiplied by `factor`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor * gradient, None


def wrong(applies, factor=1.3):
    """Heads in which the gradient of the keys is wrong where `applies(heads)`."""
    return lambda h: h._replace(k=Scaled.apply(h.k, factor)) if applies(h) else h


def masked(applies):
    """Heads with their mask where `applies(heads)` alone."""
    return lambda h: h if applies(h) else h._replace(mask=None)


def padded_to_max_len(h):
    missing = h.layer.size.max_len - h.k.shape[2]
    mask = torch.ones(h.k.shape[0], h.k.shape[2], dtype=torch.bool) if h.mask is None else h.mask
    k, v = (F.pad(part, (0, 0, 0, missing)) for part in (h.k, h.v))
    return h._replace(k=k, v=v, mask=F.pad(mask, (0, missing)))


def divided(h):
    """Return whether the batch is one that is divided on a CPU."""
    return samples_at_a_time(h.q) < len(h.q)


LOW = "gradients, fp32 and bf16"
for name, check, base, change in (
    ("IgnoresPaddingOfContext", "cross-attention", Bidirectional,
     masked(lambda h: h.q.shape[2] == h.k.shape[2])),
    ("MasksInDoublePrecisionOnly", "padding invariance", Correct,
     masked(lambda h: h.q.dtype == torch.float64)),
    ("MasksWithoutAutocastOnly", "padding invariance", Bidirectional,
     masked(lambda _: not autocast())),
    ("ScalesByMaximumOfBatch", "batch independence", Correct,
     lambda h: h._replace(k=h.k / h.k.abs().max().clamp_min(1e-6))),
    # No single graph can.
    ("BranchesOnValues", "compiles", Bidirectional,
     lambda h: h if h.q.abs().max() < 1e4 else h._replace(q=h.q.clamp(-1e4, 1e4))),
    ("BranchesOnMask", "compiles", Bidirectional,
     masked(lambda h: h.mask is not None and not h.mask.all())),
    ("StopsGradientsOfKeys", "identities", LIKE_SOFTMAX, lambda h: h._replace(k=h.k.detach())),
    ("RoundsDifferently", "identities", EXACTLY_SOFTMAX,
     lambda h: h._replace(q=h.q * 3, k=h.k / 3)),
    ("PadsKeysToMaxLen", "linear FLOPs", QUADRATIC, padded_to_max_len),
    ("DetachesQueries", "all parameters get gradients", Correct,
     lambda h: h._replace(q=h.q.detach())),
    ("GradientWrongBeyond1000Tokens", "gradients, long inputs", Bidirectional,
     wrong(lambda h: h.k.shape[2] > 1000)),
    ("GradientWrongBeyond64Tokens", "gradients", Bidirectional,
     wrong(lambda h: h.k.shape[2] > 64)),
    ("GradientWrongWithoutMask", "gradients", Bidirectional, wrong(lambda h: h.mask is None)),
    ("GradientNaNInEvaluationWithoutMask", "gradients", Bidirectional,
     wrong(lambda h: h.k.shape[2] > 64 and h.mask is None and not h.layer.training, NAN)),
    ("GradientWrongAtOneAbove40", "truncation equivalence", Bidirectional,
     wrong(lambda h: h.k.shape[2] % 40 == 1)),
    ("GradientWrongInDividedBatch", "batch independence, large batches", Bidirectional,
     wrong(divided)),
    ("GradientWrongOutsideFp64", LOW, Bidirectional, wrong(lambda h: h.k.dtype != torch.float64)),
    ("GradientWrongInBf16Module", LOW, Bidirectional,
     wrong(lambda h: h.k.dtype == BF16 and not autocast())),
    ("GradientWrongUnderAutocast", LOW, Bidirectional, wrong(lambda _: autocast())),
    ("GradientNaNInBf16ModuleWithMask", LOW, Bidirectional,
     wrong(lambda h: h.k.dtype == BF16 and h.mask is not None, NAN)),
):  # fmt: skip
    inputs(name, check, base, change)
