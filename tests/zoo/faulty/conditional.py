"""Defects that exist only at some sizes, in one mode, or in one precision."""

import torch
from torch import nn

from tests.zoo.faulty.correct import Bidirectional, Correct, Recurrent
from tests.zoo.faulty.cost import AllocatesEveryPair, QuadraticWithLinearClaim
from zoo.contract import Attended
from zoo.variants.linear import Linear
from zoo.variants.softmax import naive


def leaks_if(name, applies, heads=slice(None)):
    """A variant that is not causal in `heads` where `applies(layer, q)`."""

    def attend(self, q, k, v, mask):
        outputs = naive(q, k, v, mask, self.size.causal, 0.0)
        if self.size.causal and applies(self, q):
            outputs[:, heads] = naive(q, k, v, mask, False, 0.0)[:, heads]
        return outputs

    return type(name, (Correct,), {"attend": attend})


def forward_if(name, change, base=Bidirectional):
    """A variant whose forward pass is that of `base` on `change(layer, x, context, mask)`."""

    def forward(self, x, context, mask):
        return base.forward(self, *change(self, x, context, mask))

    return type(name, (base,), {"forward": forward})


def output_if(name, applies, change, base=Bidirectional):
    """A variant whose output is `change(tokens)` where `applies(layer, x, context, mask)`."""

    def forward(self, x, context, mask):
        tokens, losses = base.forward(self, x, context, mask)
        return Attended(change(tokens) if applies(self, x, context, mask) else tokens, losses)

    return type(name, (base,), {"forward": forward})


class Scaled(torch.autograd.Function):
    """The identity, with a gradient that is multiplied by `factor`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keys, factor):
        return keys.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor * gradient, None


def gradient_if(name, applies, factor=1.3):
    """A variant whose gradient of the keys is wrong where `applies(layer, k, mask)`."""

    def attend(self, q, k, v, mask):
        k = Scaled.apply(k, factor) if applies(self, k, mask) else k
        return Bidirectional.attend(self, q, k, v, mask)

    return type(name, (Bidirectional,), {"attend": attend})


def coupled_if(name, applies):
    """A variant whose samples depend on one another in training where `applies(batch)`."""
    return output_if(
        name,
        lambda layer, x, context, mask: layer.training and applies(len(x)),
        lambda tokens: tokens + 0.01 * tokens.roll(1, 0),
    )


class StepDiffersAfter200(Recurrent):
    """After 200 tokens, the output of a step is too large by one part in a hundred."""

    def step(self, x, state):
        tokens, after = super().step(x, state)
        return torch.where(state[0][:, None] > 200, 1.01 * tokens, tokens), after


class StateGrowsAfter200(Recurrent):
    """After 200 tokens, the state contains a cache of later inputs."""

    def start(self, batch):
        return *super().start(batch), self.zero_state(batch, 0, self.size.dim)

    def step(self, x, state):
        *inner, cache = state
        tokens, after = super().step(x, tuple(inner))
        if inner[0].max() > 200:
            cache = torch.cat([cache, x[:, None]], dim=1)
        return tokens, (*after, cache)


class QuadraticAbove5000(Linear):
    """Computes all pairs of more than 5,000 tokens."""

    traits = QuadraticWithLinearClaim.traits

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if k.shape[2] <= 5000 else heads + 0 * (q @ k.mT).sum(-1, keepdim=True)


class AllocatesEveryPairAbove5000(AllocatesEveryPair):
    """Allocates a matrix of all pairs of more than 5,000 tokens."""

    def attend(self, q, k, v, mask):
        return (super() if k.shape[2] > 5000 else super(AllocatesEveryPair, self)).attend(
            q, k, v, mask
        )


class AppliesSmallDropoutInEvaluation(Bidirectional):
    """Applies a dropout of 0.1 in both modes, and a larger one in training."""

    def attend(self, q, k, v, mask):
        p = self.size.dropout
        active = self.training or 0 < p <= 0.1
        return nn.functional.dropout(super().attend(q, k, v, mask), p, training=active)


class ScalesByDropoutInEvaluation(Bidirectional):
    """In evaluation, multiplies by the probability that dropout keeps a weight."""

    def attend(self, q, k, v, mask):
        scale = 1.0 if self.training else 1 - self.size.dropout
        return scale * super().attend(q, k, v, mask)


def _cross(x, context):
    return context if context.shape != x.shape else x


BF16 = torch.bfloat16
AUTOCAST = "cpu"

CONDITIONAL = {
    gradient_if(
        "GradientWrongBeyond1000Tokens", lambda layer, k, mask: k.shape[2] > 1000
    ): "gradients, long inputs",
    forward_if(
        "IgnoresMaskBeyond1000Tokens",
        lambda layer, x, context, mask: (x, context, mask if x.shape[1] <= 1000 else None),
    ): "padding invariance, long inputs",
    leaks_if("LeaksBeyond1000Tokens", lambda _, q: q.shape[2] > 1000): "causality, long inputs",
    leaks_if("LeaksWithOneHead", lambda _, q: q.shape[1] == 1): "causality",
    leaks_if("LeaksFromThirdHeadOn", lambda *_: True, slice(2, None)): "causality",
    leaks_if(
        "LeaksInTrainingWithDropout", lambda layer, _: layer.training and layer.size.dropout > 0
    ): "causality",
    gradient_if(
        "GradientWrongOutsideFp64", lambda layer, k, mask: k.dtype != torch.float64
    ): "gradients, fp32 and bf16",
    gradient_if(
        "GradientWrongInBf16Module",
        lambda layer, k, mask: k.dtype == BF16 and not torch.is_autocast_enabled(AUTOCAST),
    ): "gradients, fp32 and bf16",
    gradient_if(
        "GradientWrongUnderAutocast", lambda layer, k, mask: torch.is_autocast_enabled(AUTOCAST)
    ): "gradients, fp32 and bf16",
    gradient_if("GradientWrongBeyond64Tokens", lambda layer, k, mask: k.shape[2] > 64): "gradients",
    gradient_if("GradientWrongWithoutMask", lambda layer, k, mask: mask is None): "gradients",
    gradient_if(
        "GradientNaNInEvaluationWithoutMask",
        lambda layer, k, mask: k.shape[2] > 64 and mask is None and not layer.training,
        float("nan"),
    ): "gradients",
    gradient_if(
        "GradientNaNInBf16ModuleWithMask",
        lambda layer, k, mask: k.dtype == BF16 and mask is not None,
        float("nan"),
    ): "gradients, fp32 and bf16",
    output_if(
        "Bf16OutputTooSmall", lambda layer, x, *_: x.dtype == BF16, lambda tokens: 0.8 * tokens
    ): "precisions",
    output_if(
        "AutocastOutputTooSmall",
        lambda *_: torch.is_autocast_enabled(AUTOCAST),
        lambda tokens: 0.8 * tokens,
    ): "precisions",
    forward_if(
        "IgnoresContextInTraining",
        lambda layer, x, context, mask: (
            (x, x, mask if context is x else None) if layer.training else (x, context, mask)
        ),
    ): "cross-attention",
    forward_if(
        "IgnoresContextOfSameLength",
        lambda layer, x, context, mask: (x, _cross(x, context), mask),
    ): "cross-attention",
    forward_if(
        "IgnoresMaskOfContextInTraining",
        lambda layer, x, context, mask: (
            (x, context, None if layer.training and context is not x else mask)
        ),
    ): "cross-attention",
    coupled_if("CoupledInBatchesOf8", lambda batch: batch == 8): "batch independence",
    coupled_if("CoupledAbove32", lambda batch: batch > 32): "batch independence, large batches",
    coupled_if("CoupledAbove150", lambda batch: batch > 150): "batch independence, large batches",
    output_if(
        "ScalesInTrainingWithMask",
        lambda layer, x, context, mask: layer.training and mask is not None,
        lambda tokens: 1.1 * tokens,
    ): "train equals eval",
    StepDiffersAfter200: "step equals forward",
    StateGrowsAfter200: "constant-size state",
    QuadraticAbove5000: "linear FLOPs",
    AllocatesEveryPairAbove5000: "linear memory",
    AppliesSmallDropoutInEvaluation: "eval is deterministic",
    ScalesByDropoutInEvaluation: "no dropout in eval",
    output_if("OneToken", lambda *_: True, lambda tokens: tokens[:, :1]): "lengths",
    output_if(
        "OneTokenWithMask", lambda _, x, context, mask: mask is not None, lambda t: t[:, :1]
    ): "lengths",
    output_if(
        "OneTokenInEvaluation", lambda layer, *_: not layer.training, lambda t: t[:, :1]
    ): "lengths",
    output_if(
        "OneTokenOfContext", lambda _, x, context, mask: context is not x, lambda t: t[:, :1]
    ): "cross-attention",
    output_if(
        "NaNBeyond1000Tokens", lambda _, x, *__: x.shape[1] > 1000, lambda t: t * float("nan")
    ): "lengths",
}
"""The check that must detect each defect."""
