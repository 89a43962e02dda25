"""The future, a foreign context, and what a token hears of the others."""

import torch

from zoo.conformance.subject import LENGTH, Finding, Subject, at_most, attend, distance, draw
from zoo.contract import Size, Unsupported

ROUNDING = 1e-9


def the_future_is_never_seen(subject: Subject) -> Finding:
    """Perturb the tokens behind a border in value and in scale; those before it stay."""
    layer, x = subject.layer().eval(), draw(2, LENGTH)
    expected, worst = attend(layer, x), 0.0
    for border in (1, 64, 65, LENGTH - 1):
        for scale in (1.0, 1e-3, 1e3):
            other = x.clone()
            other[:, border:] = scale * draw(2, LENGTH - border, seed=3)
            found = attend(layer, other)[:, :border]
            worst = max(worst, distance(found, expected[:, :border]))
    return at_most(worst, ROUNDING, "the past moved by")


def the_future_is_unseen_in_single_precision(subject: Subject) -> Finding:
    """The same in fp32, bit for bit: a stabiliser over the future leaks through rounding."""
    layer, moved = subject.layer().float().eval(), 0
    for loudness in (0.1, 1.0, 3.0, 10.0, 30.0):
        x = (loudness * draw(2, LENGTH)).float()
        expected = attend(layer, x)[:, :64]
        for scale in (0.0, 10.0, 1e3):
            other = x.clone()
            other[:, 64:] *= scale
            found = attend(layer, other)[:, :64]
            moved += int((found - expected).abs().gt(1e-5 * expected.abs().max()).sum())
    return Finding(
        moved == 0, f"{moved} entries of the past moved by more than 1e-05 of the largest"
    )


def causality_is_refused(subject: Subject) -> Finding:
    """A variant that claims no causal form must not pretend to have one."""
    size = Size(dim=16, heads=2, max_len=32, causal=True, dropout=0.0)
    try:
        subject.variant(size)
    except Unsupported as refusal:
        return Finding(True, f"refused: {refusal}")
    return Finding(False, "built a causal layer without claiming one")


def a_foreign_context_is_heard(subject: Subject) -> Finding:
    """Cross-attention with fewer and more context tokens than queries, padded; and it matters."""
    layer, x = subject.layer().eval(), draw(2, 20)
    worst, heard = 0.0, float("inf")
    for m in (7, 33):
        context, keep = draw(2, m, seed=4), torch.arange(m) < torch.tensor([m, 5])[:, None]
        tokens = layer(x, context, keep).tokens
        if tokens.shape != x.shape:
            return Finding(False, f"{tuple(tokens.shape)} came out for {tuple(x.shape)}")
        loud = torch.where(keep[..., None], context, 1e4)
        worst = max(worst, distance(layer(x, loud, keep).tokens, tokens))
        heard = min(heard, distance(layer(x, draw(2, m, seed=5), keep).tokens, tokens))
    passed = worst <= ROUNDING and heard > 1e-6
    return Finding(passed, f"padded context moved outputs by {worst:.2g}, another by {heard:.2g}")


def a_foreign_context_is_refused(subject: Subject) -> Finding:
    """A variant that claims no cross-attention must not silently ignore the context."""
    layer = subject.layer().eval()
    try:
        layer(draw(2, 20), draw(2, 20, seed=4), None)
    except Unsupported as refusal:
        return Finding(True, f"refused: {refusal}")
    return Finding(False, "took a foreign context without claiming cross-attention")


def tokens_mix(subject: Subject) -> Finding:
    """Whether output i depends on token j != i, and how far such a dependence reaches.

    It passes either way: what counts is that it is known.
    """
    layer, x = subject.layer().eval(), draw(1, LENGTH)
    middle = LENGTH // 2
    other = x.clone()
    other[:, middle] = draw(1, 1, seed=3)[:, 0]
    moved = (attend(layer, other) - attend(layer, x)).abs().amax(-1)[0] > 1e-12
    places = moved.nonzero()[:, 0]
    reach = int((places - middle).abs().max()) if len(places) else 0
    others = int(moved.sum()) - int(moved[middle])
    if others == 0:
        return Finding(True, "no: an output depends on its own token alone")
    return Finding(True, f"yes: one token moved {others} of {LENGTH - 1} others, {reach} away")
