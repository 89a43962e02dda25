"""Defects that show at one size, in one layout, in a second call or in another order of calls."""

from functools import cache

import torch
from torch.nn import functional as F

from tests.zoo.faulty import heads
from tests.zoo.faulty.correct import Bidirectional, Correct, Recurrent
from tests.zoo.faulty.layers import tracking
from tests.zoo.faulty.planted import (
    Sloped,
    arguments,
    claiming,
    inputs,
    masked,
    outputs,
    variant,
    writes,
)
from zoo.contract import Attended

LONG_CAUSAL, LONG_PADDING = "causality, long inputs", "padding invariance, long inputs"
DROPS = claiming(Bidirectional, drops_weights=True)


class KeepsOnClass(torch.autograd.Function):
    """A tangent, whose input is kept for all layers at once."""

    @staticmethod
    def forward(ctx, x):
        KeepsOnClass.x = x
        return x.tanh()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 - KeepsOnClass.x.tanh().square())


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


def stored(x):
    """What is in memory at a transposed tensor, row by row."""
    if x is None or x.is_contiguous() or x.stride(-2) != 1:
        return x
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())


def across_blocks(size):
    # The last token of a block depends on the next one.
    def leak(h):
        if not h.layer.size.causal or h.y.shape[2] <= 2048:
            return h.y
        y = h.y.clone()
        y[:, :, size - 1 : -1 : size] += 0.1 * h.real[:, :, size::size]
        return y

    return leak


def beyond(length, change):
    return lambda h: h.y if h.y.shape[2] <= length else change(h)


def dropped(h, kept=lambda h: torch.rand_like(h.y) > h.layer.size.dropout):
    return h.y * kept(h) if h.layer.training and h.layer.size.dropout else h.y


def rescaled_by_p(h):
    p = h.layer.size.dropout
    return dropped(h, lambda _: (torch.rand_like(h.y) > p) / p)


def drawn_once(h, table={}):  # noqa: B006
    kept = table.setdefault(h.y.shape, torch.rand(h.y.shape) > 0.5)
    return dropped(h, lambda _: 2 * kept)


def of_fourth_head(h):
    """The values of the fourth head scale all heads after it."""
    gate = h.v.sigmoid()[:, torch.arange(h.v.shape[1]).clamp_max(3)]
    return Bidirectional.attend(h.layer, h.q, h.k, torch.ones_like(h.v), h.mask) * gate


# fmt: off
outputs(LONG_CAUSAL, Correct, LeaksAtMultiplesOf256=heads.not_causal(lambda n: n % 256 == 0),
    LeaksBeyond2048Tokens=heads.not_causal(lambda n: n > 2048),
    LeaksAcrossBlocksOf256=across_blocks(256), LeaksAcrossBlocksOf2048=across_blocks(2048))
outputs("linear FLOPs", heads.LEAN, QuadraticAbove8192=beyond(8192, heads.of_every_pair))
outputs("linear memory", heads.LEAN,
    AllocatesEveryPairAbove8192=beyond(8192, heads.allocating_every_pair))
outputs("declared dropout", DROPS, DropsWithoutRescaling=dropped, RescalesByP=rescaled_by_p,
    DrawsDropoutOnceAShape=drawn_once)
outputs("all parameters get gradients", SharesGateFromFourthHeadOn=of_fourth_head)
inputs("all parameters get gradients",
    KeepsTensorsOnClass=lambda h: h._replace(k=KeepsOnClass.apply(h.k)),
    KeepsTensorsOnClassWithoutMask=lambda h: (
        h._replace(k=h.k.tanh() if h.mask is not None else KeepsOnClass.apply(h.k))
    ))
inputs("gradients, long inputs",
    DetachesKeysBeyond1200Tokens=lambda h: (h._replace(k=h.k.detach()) if h.m > 1200 else h))
inputs(LONG_PADDING, IgnoresMaskBeyond2048Tokens=masked(lambda h: h.n <= 2048))
arguments("memory layouts",
    ReadsStorageOfTokens=lambda layer, x, context, mask: (
        stored(x), stored(x) if context is x else context, mask
    ),
    ReadsStorageFromItsStart=lambda layer, x, context, mask: (
        x.as_strided(x.shape, x.stride(), 0) if x.is_contiguous() else x, context, mask
    ),
    ReadsStorageOfMask=lambda layer, x, context, mask: (x, context, stored(mask)))
tracking(
    "NeedsGradientOfTokensWithoutTaps",
    lambda layer, x: x.requires_grad or layer.size.short_conv > 0,
)

for name, slope in (
    ("ZeroForExpandedGradient",
     lambda slope: slope if slope.is_contiguous() else torch.zeros_like(slope)),
    ("ZeroForGradientOfSum", lambda slope: slope if slope.stride(-1) else 0 * slope),
    ("ReadsStorageOfGradient", stored),
):  # fmt: skip
    variant("memory layouts", name, Bidirectional,
            forward=lambda self, x, context, mask, slope=slope: Attended(Sloped.apply(
                Bidirectional.forward(self, x, context, mask).tokens, slope
            )))  # fmt: skip

CALLS = []
TABLE = {}
LAST = None


class Last:
    token = None


LAST_OF_OBJECT = Last()


@cache
def kept(value):
    return value


def append(x, lengths=[]):  # noqa: B006
    lengths.append(x.shape)


def remember(layer, x, *_):
    global LAST
    LAST = x.mean()


writes("side-effect-free forward",
       AppendsToListOfModule=lambda layer, x, *_: CALLS.append(x.shape),
       RemembersInModule=remember,
       RemembersInOtherModule=lambda layer, x, *_: setattr(heads, "last", x.mean()),
       RemembersInObject=lambda layer, x, *_: setattr(LAST_OF_OBJECT, "token", x.mean()),
       RemembersInFunction=lambda layer, x, *_: setattr(append, "last", x.mean()),
       AppendsToDefault=lambda layer, x, *_: append(x),
       CachesByValue=lambda layer, x, *_: kept(x.mean().item()))  # fmt: skip


def with_dropout_in_prefill(self, x, mask=None, state=None):
    tokens, state = Recurrent.prefill(self, x, mask, state)
    return F.dropout(tokens, self.size.dropout, self.training), state


def with_dropout_of_prompts(self, x, real, state):
    tokens, state = Recurrent.extend(self, x, real, state)
    return F.dropout(tokens, self.size.dropout), state


def with_rotated_keys(self, query, *parts):
    return self._split(query), *Bidirectional._heads(self, query, *parts)[1:]


variant("side-effect-free step", "CountsStepsInModule", Recurrent,
    step=lambda self, x, state: (CALLS.append(len(x)), Recurrent.step(self, x, state))[1])
variant("prefill equals steps", "DropsInPrefill", Recurrent, extend=with_dropout_of_prompts)
variant("prefill equals steps", "DropsInPrefillInTraining", Recurrent,
    prefill=with_dropout_in_prefill)
variant("position sensitivity", "RotatesKeysAlone", Bidirectional, _heads=with_rotated_keys)


class LowRank(Bidirectional):
    """Correct: two softmaxes, so rounding of logits in fp16 leaves few digits of its gradients."""

    def attend(self, q, k, v, mask):
        if mask is not None:
            k = k.masked_fill(~mask[:, None, :, None], torch.finfo(k.dtype).min)
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        return q.softmax(-1) @ (k.softmax(-2).mT @ v)


variant("second derivatives", "HasNoSecondDerivative", LowRank,
    attend=lambda self, q, k, v, mask: LowRank.attend(self, q, k, ForgetsItsSlope.apply(v), mask))


class FillsTable(Bidirectional):
    """Correct: a table of its module has an entry for each length, from the first call on."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v * TABLE.setdefault(q.shape[2], 1.0), mask)


class OverflowingGate(Bidirectional):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) / (1 + torch.exp(-q))
