"""Defects of what the heads attend with, and of what they give: each function becomes a variant."""

from dataclasses import replace

import torch
from torch.nn import functional as F

from tests.zoo.faulty.correct import TRAITS, Correct
from tests.zoo.faulty.planted import fails, inputs, outputs
from zoo.contract import Identity, Traits
from zoo.variants.linear import Linear
from zoo.variants.softmax import naive

BF16 = torch.bfloat16
STOCHASTIC = replace(TRAITS, stochastic=True)
LINEAR = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)
SOFTMAX = Identity(other="softmax", where="always")
EXACT = Identity(other="softmax", where="always", other_options={"backend": "naive"}, exact=True)


def autocast() -> bool:
    return torch.is_autocast_enabled("cpu")


def real(v, mask):
    """Values, with zeros for padding."""
    return v if mask is None else v.masked_fill(~mask[:, None, :, None], 0.0)


def number(mask, v):
    """The number of real tokens of each sample."""
    return v.shape[2] if mask is None else mask.sum(1)[:, None, None, None].to(v.dtype)


@outputs("causality", Correct)
def ScalesByMaximumOfAllTokens(layer, y, q, k, v, mask):
    return y * (1 + real(v, mask).abs().amax((-2, -1), keepdim=True))


@outputs("causality", Correct)
def ScalesByLength(layer, y, q, k, v, mask):
    return y * (1 + number(mask, v) / 100)


@outputs("causality", Correct)
def ScalesByPadding(layer, y, q, k, v, mask):
    return y if mask is None else y * (1 + number(~mask, v) / 100)


@outputs("causality, fp32", Correct)
def SubtractsLaterTokens(layer, y, q, k, v, mask):
    """Computes the sum of earlier tokens as the sum of all tokens minus that of later ones."""
    v = real(v, mask)
    future = v.flip(2).cumsum(2).flip(2) - v
    return y + 0.1 * (v.sum(2, keepdim=True) - future) if layer.size.causal else y


def leaks(name, check, applies, heads=slice(None)):
    """A variant that is not causal in `heads` where `applies(layer, q)`."""

    def attend(self, q, k, v, mask):
        outputs = naive(q, k, v, mask, self.size.causal, 0.0)
        if self.size.causal and applies(self, q):
            outputs[:, heads] = naive(q, k, v, mask, False, 0.0)[:, heads]
        return outputs

    fails(check)(type(name, (Correct,), {"attend": attend}))


leaks("LeaksBeyond1000Tokens", "causality, long inputs", lambda _, q: q.shape[2] > 1000)
leaks("LeaksWithOneHead", "causality", lambda _, q: q.shape[1] == 1)
leaks("LeaksFromThirdHeadOn", "causality", lambda *_: True, slice(2, None))
leaks("LeaksInTrainingWithDropout", "causality",
      lambda layer, _: layer.training and layer.size.dropout > 0)  # fmt: skip


@outputs("causal receptive field", Correct)
def CausalFormWithoutMixing(layer, y, q, k, v, mask):
    return v + 0.1 * torch.tanh(q * k) if layer.size.causal else y


@outputs("causal receptive field", Correct)
def CausalFormOfFirstToken(layer, y, q, k, v, mask):
    first = real(torch.ones_like(v), mask)[:, :, :1]
    return v + first * torch.tanh(q * k[:, :, :1]) if layer.size.causal else y


@inputs("cross-attention")
def IgnoresPaddingOfContext(layer, q, k, v, mask):
    return q, k, v, mask if q.shape[2] == k.shape[2] else None


@outputs("padding invariance", Correct)
def MasksValuesOnly(layer, y, q, k, v, mask):
    """Padded keys remain in the denominator."""
    return naive(q, k, real(v, mask), None, layer.size.causal, 0.0)


@inputs("padding invariance", Correct)
def MasksInDoublePrecisionOnly(layer, q, k, v, mask):
    return q, k, v, mask if q.dtype == torch.float64 else None


@inputs("padding invariance")
def MasksWithoutAutocastOnly(layer, q, k, v, mask):
    return q, k, v, None if autocast() else mask


@outputs("padding invariance")
def AddsTraceOfPadding(layer, y, q, k, v, mask):
    """The trace is far more than rounding."""
    return y if mask is None else y + 1e-7 * v.tanh().mean(2, keepdim=True)


@outputs("fully masked input")
def DividesByZero(layer, y, q, k, v, mask):
    """Without a real key its weights are 0 / 0."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None, :], -torch.inf)
    return scores.softmax(-1) @ v


@outputs("fully masked input")
def DividesByCountOfBatch(layer, y, q, k, v, mask):
    return y if mask is None else y * (mask.sum() / mask.sum()).to(v.dtype)


@outputs("fully masked input")
def ReplacesNaNInForwardOnly(layer, y, q, k, v, mask):
    """The gradient of the division by 0 remains."""
    count = number(mask, v)
    return y if mask is None else torch.where(count > 0, y / count * count, 0.0)


@inputs("batch independence", Correct)
def ScalesByMaximumOfBatch(layer, q, k, v, mask):
    return q, k / k.abs().max().clamp_min(1e-6), v, mask


@outputs("batch independence")
def ScalesByBatchSize(layer, y, q, k, v, mask):
    return y * (1 + len(q) / 100)


@outputs("batch independence", Correct, traits=STOCHASTIC)
def ScalesByMeanOfBatchInTraining(layer, y, q, k, v, mask):
    return y * (v.abs().mean() if layer.training else 1.0)


@outputs("batch independence", Correct, traits=STOCHASTIC)
def ScalesByCountOfBatchInTraining(layer, y, q, k, v, mask):
    share = mask.to(v.dtype).mean() if mask is not None and layer.training else 1.0
    return y * (1 + share)


@outputs("precisions")
def DoublesInHalfPrecision(layer, y, q, k, v, mask):
    return y * (2 if v.dtype == BF16 and not autocast() else 1)


@outputs("precisions")
def ScalesInSinglePrecision(layer, y, q, k, v, mask):
    return y * (1.01 if v.dtype == torch.float32 and not autocast() else 1)


@outputs("precisions")
def DoublesUnderAutocast(layer, y, q, k, v, mask):
    return y * (2 if autocast() else 1)


@outputs("lengths")
def SlicesByZero(layer, y, q, k, v, mask):
    """Pads to blocks of 64 and removes the rest with a slice that is wrong for a rest of 0."""
    surplus = -q.shape[2] % 64
    return F.pad(y, (0, 0, 0, surplus))[:, :, :-surplus]


@outputs("large inputs", Correct)
def OverflowsForLargeInputs(layer, y, q, k, v, mask):
    """Exponentials without subtracting a maximum."""
    weights = (q @ k.mT).exp()
    weights = weights if mask is None else weights * mask[:, None, None, :]
    return weights @ v / weights.sum(-1, keepdim=True).clamp_min(1e-30)


@outputs("large inputs")
def OverflowsInBackward(layer, y, q, k, v, mask):
    """The value is clamped, and its gradient is not."""
    return y + 0.01 * q.exp().clamp_max(1.0)


@outputs("train equals eval")
def ScalesInTraining(layer, y, q, k, v, mask):
    return y * (1.1 if layer.training else 1.0)


@outputs("eval is deterministic", Correct)
def AddsDropoutInEvaluation(layer, y, q, k, v, mask):
    return F.dropout(y, 0.1)


@outputs("eval is deterministic")
def AppliesGivenDropoutInEvaluation(layer, y, q, k, v, mask):
    return F.dropout(y, layer.size.dropout)


@outputs("eval is deterministic")
def AppliesSmallDropoutInEvaluation(layer, y, q, k, v, mask):
    p = layer.size.dropout
    return F.dropout(y, p, layer.training or 0 < p <= 0.1)


@outputs("no dropout in eval")
def ScalesByDropoutInEvaluation(layer, y, q, k, v, mask):
    return y * (1.0 if layer.training else 1 - layer.size.dropout)


@outputs("declared dropout", drops_weights=True)
def IgnoresDropout(layer, y, q, k, v, mask):
    return y


def unseeded() -> torch.Generator:
    """A generator that cannot be seeded from outside."""
    generator = torch.Generator()
    generator.seed()
    return generator


@outputs("seeded determinism", Correct, traits=STOCHASTIC)
def DrawsUnseededNoise(layer, y, q, k, v, mask):
    noise = torch.randn(v.shape, generator=unseeded()).to(v.dtype)
    return y + noise if layer.training else y


@outputs("seeded determinism")
def DrawsUnseededDropout(layer, y, q, k, v, mask):
    p = layer.size.dropout
    kept = torch.rand(v.shape[-2:], generator=unseeded()) > p
    return y * kept if layer.training and p else y


@inputs("compiles")
def BranchesOnValues(layer, q, k, v, mask):
    """No single graph can."""
    return q if q.abs().max() < 1e4 else q.clamp(-1e4, 1e4), k, v, mask


@inputs("compiles")
def BranchesOnMask(layer, q, k, v, mask):
    return q, k, v, None if mask is None or mask.all() else mask


@outputs("compiles")
def DiffersWhenCompiled(layer, y, q, k, v, mask):
    return y * (1.1 if torch.compiler.is_compiling() else 1.0)


@outputs("vmap")
def WritesIntoUnbatchedBuffer(layer, y, q, k, v, mask):
    """Its output buffer has room for one set of parameters."""
    return torch.zeros(q.shape, dtype=q.dtype).copy_(y)


@outputs("vmap")
def WritesIntoUnbatchedBufferIfPadded(layer, y, q, k, v, mask):
    return y if mask is None else torch.zeros(q.shape, dtype=q.dtype).copy_(y)


@outputs("export")
def FixesTheBatch(layer, y, q, k, v, mask):
    """Its graph is for the number of samples of its export."""
    return y * (len(q) / q.shape[0])


@outputs("export")
def DiffersWhenExported(layer, y, q, k, v, mask):
    return y * (1 + 1e-6 * (mask is not None and torch.compiler.is_exporting()))


@outputs("identities", identities=(SOFTMAX,))
def DiffersFromSoftmaxWithPadding(layer, y, q, k, v, mask):
    return y if mask is None else y * (1 + 1e-10)


@inputs("identities", identities=(SOFTMAX,))
def StopsGradientsOfKeys(layer, q, k, v, mask):
    return q, k.detach(), v, mask


@inputs("identities", identities=(EXACT,))
def RoundsDifferently(layer, q, k, v, mask):
    return q * 3, k / 3, v, mask


@outputs("linear FLOPs", Correct, traits=LINEAR)
def QuadraticWithLinearClaim(layer, y, q, k, v, mask):
    return y


@inputs("linear FLOPs", Correct, traits=LINEAR)
def PadsKeysToMaxLen(layer, q, k, v, mask):
    missing = layer.size.max_len - k.shape[2]
    mask = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool) if mask is None else mask
    return q, *(F.pad(part, (0, 0, 0, missing)) for part in (k, v)), F.pad(mask, (0, missing))


@outputs("linear FLOPs", Linear, traits=LINEAR)
def QuadraticWithPadding(layer, y, q, k, v, mask):
    return y if mask is None else y + 0 * (q @ k.mT).sum(-1, keepdim=True)


@outputs("linear FLOPs", Linear, traits=LINEAR)
def QuadraticAbove5000(layer, y, q, k, v, mask):
    return y if k.shape[2] <= 5000 else y + 0 * (q @ k.mT).sum(-1, keepdim=True)


@outputs("linear FLOPs", Linear, traits=LINEAR)
def GrowsWithRootOfLength(layer, y, q, k, v, mask):
    """Each token attends to as many tokens as the root of the length."""
    few = 4 * int(q.shape[2] ** 0.5)
    return y + 0 * (q @ k[:, :, :few].mT @ v[:, :, :few])


def every_pair(q, k):
    """Ones, from few operations and an allocation for all pairs."""
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).any(1)[:, None]


@outputs("linear memory", Linear, traits=LINEAR)
def AllocatesEveryPair(layer, y, q, k, v, mask):
    return y * every_pair(q, k)


@outputs("linear memory", Linear, traits=LINEAR)
def AllocatesEveryPairAbove5000(layer, y, q, k, v, mask):
    return y if k.shape[2] <= 5000 else y * every_pair(q, k)


@inputs("all parameters get gradients", Correct)
def DetachesQueries(layer, q, k, v, mask):
    return q.detach(), k, v, mask


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


def wrong_gradient(name, check, applies, factor=1.3):
    """A variant whose gradient of the keys is wrong where `applies(layer, k, mask)`."""

    def change(layer, q, k, v, mask):
        return q, Scaled.apply(k, factor) if applies(layer, k, mask) else k, v, mask

    change.__name__ = name
    inputs(check)(change)


NAN, LOW = float("nan"), "gradients, fp32 and bf16"
wrong_gradient(
    "GradientWrongBeyond1000Tokens", "gradients, long inputs", lambda _, k, mask: k.shape[2] > 1000
)
wrong_gradient("GradientWrongBeyond64Tokens", "gradients", lambda _, k, mask: k.shape[2] > 64)
wrong_gradient("GradientWrongWithoutMask", "gradients", lambda _, k, mask: mask is None)
wrong_gradient(
    "GradientNaNInEvaluationWithoutMask", "gradients",
    lambda layer, k, mask: k.shape[2] > 64 and mask is None and not layer.training, NAN,
)  # fmt: skip
wrong_gradient("GradientWrongOutsideFp64", LOW, lambda _, k, mask: k.dtype != torch.float64)
wrong_gradient(
    "GradientWrongInBf16Module", LOW, lambda _, k, mask: k.dtype == BF16 and not autocast()
)
wrong_gradient("GradientWrongUnderAutocast", LOW, lambda *_: autocast())
wrong_gradient(
    "GradientNaNInBf16ModuleWithMask", LOW,
    lambda _, k, mask: k.dtype == BF16 and mask is not None, NAN,
)  # fmt: skip
