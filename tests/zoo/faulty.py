"""Variants with one defect each, the checks that must detect it, and correct variants."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Attended, Attention, Identity, Traits
from zoo.projected import ProjectedAttention
from zoo.recompute import samples_at_a_time
from zoo.variants.linear import Linear
from zoo.variants.none import NoAttention
from zoo.variants.soft import Soft
from zoo.variants.softmax import naive, sdpa

TRAITS = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)


class Correct(ProjectedAttention):
    traits = TRAITS

    def attend(self, q, k, v, mask):
        return sdpa(q, k, v, mask, self.size.causal, 0.0)


class Bidirectional(Correct):
    """The same without a causal form, for defects that need none: half as many checks."""

    traits = replace(TRAITS, causal=False)


class Recurrent(Linear):
    """Linear attention, without its claim of a linear cost, whose checks take long."""

    traits = replace(Linear.traits, linear=False)


class Copies(Attention):
    """Without parameters, as no registered variant."""

    traits = replace(TRAITS, causal=False, cross=False, linear=True)

    def forward(self, x, context=None, mask=None):
        return Attended(x)


TABLE = {}


class FillsTable(Bidirectional):
    """A table of its module has an entry for each length, from the first call on."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v * TABLE.setdefault(q.shape[2], 1.0), mask)


EFFECTS: dict[str, Callable[[Tensor], Tensor]] = {
    "value": lambda x: x.sign(),
    "gradient": lambda x: x - x.detach(),
}


def leak(kind: str, pair: tuple[int, int], effect: str, applies=lambda *_: True) -> type[Attention]:
    """No attention, but for one output that depends on one token that it must not depend on.

    Output i depends on token j, for `pair` (i, j): `causal` in the causal form, of `padding` if
    the latter alone is padded. Of a `batch`, all outputs of sample i depend on token 0 of sample j.
    """
    i, j = pair

    def change(layer: Attention, x: Tensor, mask: Tensor | None) -> Tensor | None:
        length = x.shape[kind != "batch"]
        if max(pair) >= length or not applies(layer, x, mask):
            return None
        if kind == "batch":
            here = (torch.arange(len(x)) == i)[:, None, None]
            return torch.where(here, EFFECTS[effect](x[j, 0]), 0.0)
        if kind == "causal":
            given = torch.tensor(layer.size.causal) if mask is None else mask[:, j, None]
            given = given & layer.size.causal
        else:
            given = torch.tensor(False) if mask is None else mask[:, i, None] & ~mask[:, j, None]
        here = (torch.arange(length) == i)[:, None]
        return torch.where(here, (given * EFFECTS[effect](x[:, j]))[:, None], 0.0)

    def forward(self, x, context, mask):
        tokens, leaked = NoAttention.forward(self, x, context, mask).tokens, change(self, x, mask)
        return Attended(tokens if leaked is None else tokens + (0.01 * leaked).to(tokens.dtype))

    return type(f"Leak {kind} {pair} {effect}", (NoAttention,), {"forward": forward})


class Heads(NamedTuple):
    layer: Any
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    y: Any = None

    @property
    def n(self) -> int:
        return self.q.shape[2]

    @property
    def count(self) -> Any:
        return self.n if self.mask is None else self.mask.sum(1)[:, None, None, None].to(self.v)


def heads(change):
    """Attend with other queries, keys, values and mask."""
    return {
        "attend": lambda self, *given: self.correct.attend(self, *change(Heads(self, *given))[1:5])
    }


def outputs(change):
    """Return other outputs of the heads, of which `y` are the right ones."""
    return {
        "attend": lambda self, *given: change(
            Heads(self, *given, self.correct.attend(self, *given))
        )
    }


def if_padded(change):
    return outputs(lambda h: h.y if h.mask is None else change(h))


class Sloped(torch.autograd.Function):
    """A copy, with the gradient `slope(gradient)`."""

    @staticmethod
    def forward(ctx, x, slope):
        ctx.slope = slope
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.slope(gradient), None


def wrong(applies, factor=1.3):
    """Give the keys a wrong gradient where `applies(heads)`."""
    slope = lambda gradient: factor * gradient  # noqa: E731
    return heads(lambda h: h._replace(k=Sloped.apply(h.k, slope)) if applies(h) else h)


KEPT = {}


def superseded(h):
    """The gradient of a long input is wrong after another call."""
    KEPT["keys"] = keys = h.k.detach()
    right = lambda: h.n <= 512 or KEPT["keys"] is keys  # noqa: E731
    return h._replace(k=Sloped.apply(h.k, lambda slope: slope if right() else 1.1 * slope))


def of_fourth_head(h):
    """The values of the fourth head scale all heads after it."""
    gate = h.v.sigmoid()[:, torch.arange(h.v.shape[1]).clamp_max(3)]
    return Bidirectional.attend(h.layer, h.q, h.k, torch.ones_like(h.v), h.mask) * gate


def without_second_derivative(self, q, k, v, mask):
    y = v.tanh()
    v = y.detach() + (v - v.detach()) * (1 - y.square()).detach()
    return naive(q, k, v, mask, False, 0.0)


def padded_on_the_right(h):
    m = h.k.shape[2]
    same = h.mask is None or h.n == m
    return h if same else h._replace(mask=torch.arange(m) < h.mask.sum(1, keepdim=True))


def less_later_tokens(h):
    # The sum of earlier tokens is the sum of all minus the sum of later ones.
    v = h.v if h.mask is None else h.v.masked_fill(~h.mask[:, None, :, None], 0.0)
    future = v.flip(2).cumsum(2).flip(2) - v
    return h.y + 0.1 * (v.sum(2, keepdim=True) - future) * h.layer.size.causal


def dropped(h, kept=lambda h: torch.rand_like(h.y) > h.layer.size.dropout):
    return h.y * kept(h) if h.layer.training and h.layer.size.dropout else h.y


def unseeded(h):
    generator = torch.Generator()
    generator.seed()
    return dropped(h, lambda h: torch.rand(h.y.shape, generator=generator) > h.layer.size.dropout)


def bare_call(self, x, context=None, mask=None, segments=None):
    # Without what a call does for all variants.
    context = x if context is None else context
    return nn.Module.__call__(self, x, context, None if mask is None else mask.bool())


def from_start_of_storage(self, x, *call):
    x = x.as_strided(x.shape, x.stride(), 0) if x.is_contiguous() else x
    return Bidirectional.forward(self, x, *call)


def in_fp32(self, *call):
    tokens, _ = Bidirectional.forward(self, *call)
    return Attended(tokens.to(torch.promote_types(tokens.dtype, torch.float32)))


def ignoring_context_of_same_length(self, x, context, mask):
    return Bidirectional.forward(self, x, x if context.shape == x.shape else context, mask)


class Lossy(Bidirectional):
    """With a loss that is 10,000 times too large, also in evaluation, and half of its gradient."""

    traits = replace(Bidirectional.traits, losses=("size",))

    def forward(self, x, context, mask):
        tokens, _ = super().forward(x, context, mask)
        loss = self.real(tokens, mask).square().mean()
        return Attended(tokens, {"size": 1e4 * (loss + loss.detach())})

    def real(self, tokens, mask):
        return tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0)


CALLS, COUNTS, NORM = [], np.zeros(1), nn.BatchNorm1d(1).double()
COUNTED = type("Counted", (), {"count": 0, "__module__": __name__})()
cached = cache(float)

WRITES = [
    lambda layer, x, context, mask: mask is None or mask[:, 0].logical_or_(~mask.any(1)),
    lambda *_: torch.manual_seed(0),
    lambda layer, x, *_, shapes=[]: shapes.append(x.shape),
    lambda *_: setattr(COUNTED, "count", COUNTED.count + 1),
    lambda *_: np.add(COUNTS, 1, out=COUNTS),
    lambda layer, x, *_: cached(x.sum().item()),
    lambda layer, x, *_: NORM(x.reshape(-1, 1)),
]


def writing(write):
    return {
        "forward": lambda self, *call: (Bidirectional.forward(self, *call), write(self, *call))[0]
    }


def steps(change):
    """Return `change(layer, x, state, tokens, next_state)` for the last two."""
    return {"step": lambda self, x, state: change(self, x, state, *Recurrent.step(self, x, state))}


def late_of_rotary_heads(layer, x, before, tokens, after):
    late = before[0][:, None] > 1000
    return tokens * (1 + 0.01 * late * (layer.size.rotary and layer.size.heads > 4)), after


def in_precision_of_layer(layer, x, before, tokens, after):
    return tokens, (*after[:-1], after[-1].to(layer.out.weight.dtype))


def counting_the_first_sample(layer, x, before, *_):
    return Recurrent.step(layer, x, (before[0][:1].expand_as(before[0]), *before[1:]))


def writing_without_gradients(layer, x, before, *results):
    if not torch.is_grad_enabled():
        before[-1].mul_(2)
    return results


def of_every_pair(h):
    return h.y + 0 * (h.q[:, :1] @ h.k[:, :1].mT).sum(-1, keepdim=True)


EXACT = Identity(other="softmax", where="always", exact=True, other_options={"backend": "sdpa"})

TABLE_OF_FAULTS: dict[type, list[tuple[str, dict[str, Any]]]] = {
    Bidirectional: [
        ("lengths", if_padded(lambda h: h.y[:, :, :1])),
        ("memory layouts", {"forward": from_start_of_storage}),
        ("precisions", {"forward": in_fp32}),
        # The value is clamped, and its gradient is not.
        ("large inputs; large inputs, fp16", outputs(lambda h: h.y + h.q.exp().clamp_max(1) / 99)),
        ("all parameters get gradients", heads(superseded)),
        ("all parameters get gradients", outputs(of_fourth_head)),
        ("all parameters get gradients", heads(
            lambda h: h if h.layer.out.weight.requires_grad else h._replace(v=h.v.detach())
        )),
        ("gradients, long inputs", heads(
            lambda h: h if h.n <= 1200 or h.mask is None else h._replace(k=h.k.detach())
        )),
        ("gradients, fp32 and bf16", wrong(
            lambda h: h.k.dtype == torch.bfloat16 and h.mask is not None, float("nan")
        )),
        ("second derivatives", {"attend": without_second_derivative}),
        ("padding invariance", {"__call__": bare_call}),  # 0 times NaN
        ("padding invariance, long inputs", heads(
            lambda h: h if h.n <= 2048 else h._replace(mask=None)
        )),
        ("truncation equivalence", wrong(lambda h: h.n % 40 == 1)),
        # The gradient of the division by 0 remains.
        ("fully masked input", if_padded(
            lambda h: torch.where(h.count > 0, h.y / h.count * h.count, 0.0)
        )),
        ("empty batch", outputs(lambda h: h.y.reshape(-1, h.y[:1].numel()).reshape(h.y.shape))),
        ("batch independence; batch independence, large batches", outputs(
            lambda h: h.y + 0.01 * h.y.roll(1, 0) * (h.layer.training and len(h.q) in (8, 160))
        )),
        ("batch independence, large batches", wrong(
            lambda h: samples_at_a_time(h.q) < len(h.q)
        )),
        ("position sensitivity", {"apply_rotary": lambda self, x, positions=None: x}),
        ("cross-attention", {"forward": ignoring_context_of_same_length}),
        ("cross-attention", heads(padded_on_the_right)),
        ("rejects causal; rejects cross-attention; rejects recurrence; rejects non-boolean mask; "
         "rejects packed sequences", {
            "traits": replace(TRAITS, causal=False, cross=False),
            "expected_failures": MappingProxyType({"padding invariance": "so it is not packed"}),
            "__init__": lambda self, size: self.correct.__init__(self, replace(size, causal=False)),
            "__call__": bare_call, "start": lambda self, batch: (),
        }),
        *(("identities", {"identities": (EXACT,), **heads(change)}) for change in (
            lambda h: h._replace(k=h.k.detach()), lambda h: h._replace(q=h.q * 3, k=h.k / 3),
        )),
        ("eval is deterministic; no dropout in eval", outputs(
            lambda h: F.dropout(h.y, h.layer.size.dropout, training=True)
        )),
        ("seeded determinism", outputs(unseeded)),
        *(("declared dropout", {"drops_weights": True, **outputs(change)}) for change in (
            lambda h: h.y,
            lambda h: dropped(h, lambda h: (torch.arange(h.y.numel()).view_as(h.y) % 5 > 1) / 0.6),
        )),
        ("train equals eval; no_grad equals grad", if_padded(
            lambda h: h.y * (1.1 if h.layer.training or torch.is_inference_mode_enabled() else 1.0)
        )),
        *(("side-effect-free forward", writing(write)) for write in WRITES),
        # Behind a short convolution, as its taps would be.
        ("state_dict round trip", outputs(
            lambda h: h.y * (1 + id(h.layer) / 2**50 * h.layer.size.short_conv)
        )),
        ("compiles; export", if_padded(
            lambda h: h.y * (1 + 1e-6 * torch.compiler.is_compiling())
        )),
        ("vmap", if_padded(lambda h: torch.zeros(h.q.shape, dtype=h.q.dtype).copy_(h.y))),
    ],
    Lossy: [
        ("declared losses; gradients; auxiliary loss does not dominate", {}),
        ("padding invariance", {"real": lambda self, tokens, mask: tokens}),
    ],
    Soft: [("gradients, backward under autocast", {"__call__": bare_call})],
    Correct: [
        ("causality", outputs(lambda h: h.y * (1 + h.count / 100))),
        ("causality, fp32", outputs(less_later_tokens)),
        ("causal receptive field", outputs(lambda h: h.v if h.layer.size.causal else h.y)),
    ],
    leak("causal", (2047, 2048), "gradient"): [("causality, long inputs", {})],
    Recurrent: [
        *(("packed equals separate", {"packed": lambda self, x, mask, segments, part=part: (
            self.forward(x, x, mask) if getattr(self.size, part)
            else Recurrent.packed(self, x, mask, segments)
        )}) for part in ("short_conv", "rotary")),
        ("packed prompts equal separate", {
            "prefill": lambda self, x, mask=None, state=None, segments=None: (
                Recurrent.prefill(self, x, mask, state, segments if state is None else None)
            ),
        }),
        ("rejects bidirectional", {
            "traits": replace(Recurrent.traits, cross=False, bidirectional=False),
            "__init__": lambda self, size: self.correct.__init__(self, replace(size, causal=True)),
        }),
        ("linear layers are called", {"_merge": lambda self, x, heads: (
            Recurrent._merge(self, x, heads) if heads.shape[2] > 1
            else F.linear(heads.transpose(1, 2).flatten(-2), self.out.weight, self.out.bias)
        )}),
        ("step equals forward", steps(late_of_rotary_heads)),
        ("step equals forward; side-effect-free step", steps(in_precision_of_layer)),
        ("side-effect-free step", steps(counting_the_first_sample)),
        ("side-effect-free step", steps(writing_without_gradients)),
        ("side-effect-free step", steps(lambda layer, x, _, *rest: (CALLS.append(x), rest)[1])),
        ("constant-size state", {
            "start": lambda self, batch: (
                *Recurrent.start(self, batch), self.zero_state(batch, self.size.max_len)
            ),
            "step": lambda self, x, state: Recurrent.step(self, x, state[:-1]),
        }),
        *(("prefill equals steps", {"attend_after": lambda self, *call, change=change: (
            Recurrent.attend_after(self, *change(*call))
        )}) for change in (
            lambda q, k, v, real, state: (q, k, v, None, state),
            lambda q, k, v, *rest: (q, 0 * k if k.shape[2] >= 1000 else k, v, *rest),
        )),
    ],
    type("Lean", (Linear,), {"traits": replace(TRAITS, causal=False, linear=True)}): [
        ("linear FLOPs", outputs(
            lambda h: h.y if h.n <= 8192 or h.layer.training else of_every_pair(h)
        )),
        ("linear memory", outputs(lambda h: (
            h.y * (h.n <= 8192 or torch.ones(h.n, h.n, dtype=torch.bool).any(1)[:, None])
        ))),
    ],
}  # fmt: skip

FAULTY = [
    (type(f"Faulty{base.__name__}", (base,), {"correct": base, **attributes}), checks.split("; "))
    for base, rows in TABLE_OF_FAULTS.items()
    for checks, attributes in rows
]
"""Variants with one defect each, and the checks that must detect it."""
