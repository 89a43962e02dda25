"""Defects that show at one size, in one layout, in a second call or in another order of calls."""

import torch
from torch.nn import functional as F

from tests.zoo.faulty import heads
from tests.zoo.faulty.correct import Bidirectional, Correct, Recurrent
from tests.zoo.faulty.layers import tracking
from tests.zoo.faulty.planted import arguments, claiming, fails, inputs, outputs, writes
from zoo.contract import Attended

LONG_CAUSAL, LONG_PADDING = "causality, long inputs", "padding invariance, long inputs"
DROPS = claiming(Bidirectional, drops_weights=True)


class Identity(torch.autograd.Function):
    """A copy, with the gradient `slope(gradient)`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, slope):
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.slope = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return ctx.slope(gradient), None


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


def across_blocks(h):
    """The last token of a block of 256 depends on the next one."""
    if not h.layer.size.causal or h.y.shape[2] <= 2048:
        return h.y
    y = h.y.clone()
    y[:, :, 255:-1:256] += 0.1 * h.real[:, :, 256::256]
    return y


def beyond(length, change):
    """Outputs that are `change(heads)` of more than `length` tokens."""
    return lambda h: h.y if h.y.shape[2] <= length else change(h)


def dropped(h, kept=lambda h: torch.rand_like(h.y) > h.layer.size.dropout):
    return h.y * kept(h) if h.layer.training and h.layer.size.dropout else h.y


def drawn_once(h, table={}):  # noqa: B006
    kept = table.setdefault(h.y.shape, torch.rand(h.y.shape) > 0.5)
    return dropped(h, lambda _: 2 * kept)


def of_fourth_head(h):
    """The values of the fourth head scale all heads after it."""
    gate = h.v.sigmoid()[:, torch.arange(h.v.shape[1]).clamp_max(3)]
    return Bidirectional.attend(h.layer, h.q, h.k, torch.ones_like(h.v), h.mask) * gate


for name, check, base, change in (
    ("LeaksAtMultiplesOf256", LONG_CAUSAL, Correct,
     heads.not_causal(lambda _, q: q.shape[2] % 256 == 0)),
    ("LeaksBeyond2048Tokens", LONG_CAUSAL, Correct,
     heads.not_causal(lambda _, q: q.shape[2] > 2048)),
    ("LeaksAcrossBlocksOf256", LONG_CAUSAL, Correct, across_blocks),
    ("QuadraticAbove8192", "linear FLOPs", heads.LEAN, beyond(8192, heads.of_every_pair)),
    ("AllocatesEveryPairAbove8192", "linear memory", heads.LEAN,
     beyond(8192, heads.allocating_every_pair)),
    ("DropsWithoutRescaling", "declared dropout", DROPS, dropped),
    ("DrawsDropoutOnceAShape", "declared dropout", DROPS, drawn_once),
    ("SharesGateFromFourthHeadOn", "all parameters get gradients", Bidirectional, of_fourth_head),
):  # fmt: skip
    outputs(name, check, base, change)

for name, check, change in (
    ("KeepsTensorsOnClass", "all parameters get gradients",
     lambda h: h._replace(k=KeepsOnClass.apply(h.k))),
    ("DetachesKeysBeyond1200Tokens", "gradients, long inputs",
     lambda h: h._replace(k=h.k.detach()) if h.k.shape[2] > 1200 else h),
):  # fmt: skip
    inputs(name, check, Bidirectional, change)

for name, check, change in (
    ("IgnoresMaskBeyond2048Tokens", LONG_PADDING,
     lambda layer, x, context, mask: (x, context, mask if x.shape[1] <= 2048 else None)),
    ("ReadsStorageOfTokens", "memory layouts",
     lambda layer, x, context, mask: (stored(x), stored(x) if context is x else context, mask)),
    ("ReadsStorageOfMask", "memory layouts",
     lambda layer, x, context, mask: (x, context, stored(mask))),
):  # fmt: skip
    arguments(name, check, Bidirectional, change)

tracking(
    "NeedsGradientOfTokensWithoutTaps",
    lambda layer, x: x.requires_grad or layer.size.short_conv > 0,
)

for name, slope in (
    ("ZeroForExpandedGradient",
     lambda slope: slope if slope.is_contiguous() else torch.zeros_like(slope)),
    ("ReadsStorageOfGradient", stored),
):  # fmt: skip

    def forward(self, x, context, mask, slope=slope):
        tokens = Bidirectional.forward(self, x, context, mask).tokens
        return Attended(Identity.apply(tokens, slope))

    fails("memory layouts")(type(name, (Bidirectional,), {"forward": forward}))

CALLS = []
TABLE = {}
LAST = None


def remember(x, *_):
    global LAST
    LAST = x.mean()


writes("AppendsToListOfModule", Bidirectional, lambda x, *_: CALLS.append(x.shape))
writes("RemembersInModule", Bidirectional, remember)


@fails("side-effect-free step")
class CountsStepsInModule(Recurrent):
    def step(self, x, state):
        CALLS.append(len(x))
        return super().step(x, state)


@fails("prefill equals steps")
class DropsInPrefill(Recurrent):
    def extend(self, x, real, state):
        tokens, state = super().extend(x, real, state)
        return F.dropout(tokens, self.size.dropout), state


@fails("prefill equals steps")
class DropsInPrefillInTraining(Recurrent):
    def prefill(self, x, mask=None, state=None):
        tokens, state = super().prefill(x, mask, state)
        return F.dropout(tokens, self.size.dropout, self.training), state


@fails("position sensitivity")
class RotatesKeysAlone(Bidirectional):
    def _heads(self, query, context, of_query, of_key):
        _, k, v = super()._heads(query, context, of_query, of_key)
        return self._split(query), k, v


class LowRank(Bidirectional):
    """Correct: two softmaxes, so rounding of logits in fp16 leaves few digits of its gradients."""

    def attend(self, q, k, v, mask):
        if mask is not None:
            k = k.masked_fill(~mask[:, None, :, None], torch.finfo(k.dtype).min)
            v = v.masked_fill(~mask[:, None, :, None], 0.0)
        return q.softmax(-1) @ (k.softmax(-2).mT @ v)


@fails("second derivatives")
class HasNoSecondDerivative(LowRank):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, ForgetsItsSlope.apply(v), mask)


class FillsTable(Bidirectional):
    """Correct: a table of its module has an entry for each length, from the first call on."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v * TABLE.setdefault(q.shape[2], 1.0), mask)


class OverflowingGate(Bidirectional):
    """A sigmoid by hand: its exponential overflows."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) / (1 + torch.exp(-q))
