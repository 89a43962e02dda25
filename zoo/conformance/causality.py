"""The future, a foreign context, and what a token hears of the others."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from zoo.conformance.subject import (
    LENGTH,
    ROUNDING,
    SITUATIONS,
    Finding,
    Subject,
    attend,
    distance,
    draw,
    everywhere,
    furthest,
    paddings,
)
from zoo.contract import Unsupported, attended_by


def the_future_is_never_seen(subject: Subject) -> Finding:
    """Tokens before a border stay, whatever becomes of those behind it.

    They are perturbed in value and in scale; in evaluation they are also left out, or real where
    they were padded and padded where they were real.
    """
    *_, padding = paddings()
    x, moved, told = draw(3, LENGTH), {}, {}
    for situation in (one for one in SITUATIONS if one.dtype == torch.float64):
        layer, worst = subject.layer_in(situation), (0.0, "")
        for mask in (None, padding):
            expected = situation.attend(layer, x, mask).tokens
            for border in (1, 64, 65, LENGTH - 1):
                real = slice(None) if mask is None else mask[:, :border]
                for words, other, mask in _futures(x, mask, border, situation.training):
                    found = situation.attend(layer, other, mask).tokens[:, :border]
                    gap = distance(found[real], expected[:, :border][real])
                    if gap > worst[0]:
                        worst = gap, f", by a future {words} from token {border} on"
        moved[situation], told[situation] = worst
    verdict = everywhere(moved, "the past moved by")
    if verdict.passed:
        return verdict
    return verdict._replace(figure=verdict.figure + told[furthest(moved)])


def _futures(
    x: Tensor, mask: Tensor | None, border: int, training: bool
) -> Iterator[tuple[str, Tensor, Tensor | None]]:
    """Other futures than `x` has from the border on: each in words, with its tokens and mask."""
    for scale in (0.0, 1e-3, 1.0, 1e3):
        other = x.clone()
        other[:, border:] = scale * draw(3, LENGTH - border, seed=3)
        yield f"of noise, {scale:g} times as loud," if scale else "of zeros", other, mask
    if training:
        # Random draws are as many as the tokens: another length draws others.
        return
    yield "left out", x[:, :border], None if mask is None else mask[:, :border]
    mask = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask.clone()
    mask[:, border:] = ~mask[:, border:]
    yield "padded the other way", x, mask


def the_future_is_unseen_in_single_precision(subject: Subject) -> Finding:
    """The same in fp32, bit for bit: a stabiliser over the future leaks through rounding."""
    layer, moved = subject.layer().float().eval(), 0
    for loudness in (0.1, 1.0, 3.0, 10.0, 30.0, 100.0):
        x = (loudness * draw(2, LENGTH)).float()
        expected = attend(layer, x)
        for border in (64, 140):
            for scale in (0.0, 1e-3, 10.0, 1e3):
                other = x.clone()
                other[:, border:] *= scale
                past = expected[:, :border]
                gap = (attend(layer, other)[:, :border] - past).abs()
                moved += int(gap.gt(1e-5 * past.abs().max()).sum())
    return Finding(
        moved == 0, f"{moved} entries of the past moved by more than 1e-05 of the largest"
    )


def the_past_is_heard(subject: Subject) -> Finding:
    """Where a token moves a later output of the bidirectional form, it moves the causal one too."""
    deaf, heard, itself = 0, 0, True
    for place in (0, 1, LENGTH // 3, LENGTH // 2, LENGTH - 2):
        forms = subject, replace(subject, causal=False)
        causal, other = (_moved_by(place, form)[place:] for form in forms)
        deaf += int((other & ~causal).sum())
        heard += int(causal.sum())
        itself &= bool(causal[0])
    return Finding(
        itself and deaf == 0,
        f"{heard} outputs hear one of five tokens before them, {deaf} only in the other form",
    )


def _moved_by(place: int, subject: Subject) -> Tensor:
    """Which outputs change with the token at `place`.

    Raises:
        ArithmeticError: one is no finite number.
    """
    layer, x = subject.layer().eval(), draw(1, LENGTH)
    other = x.clone()
    other[:, place] = draw(1, 1, seed=3)[:, 0]
    gap = (attend(layer, other) - attend(layer, x)).abs().amax(-1)[0]
    if not gap.isfinite().all():
        raise ArithmeticError("outputs are not finite")
    return gap > 1e-12


def causality_is_refused(subject: Subject) -> Finding:
    """A variant that claims no causal form must not pretend to have one."""
    try:
        replace(subject, causal=True).layer()
    except Unsupported as refusal:
        return Finding(True, f"refused: {refusal}")
    return Finding(False, "built a causal layer without claiming one")


def a_foreign_context_is_heard(subject: Subject) -> Finding:
    """Cross-attention with fewer and more context tokens than queries, padded; and it matters."""
    layer, x = subject.layer().eval(), draw(2, 20)
    worst, heard = 0.0, float("inf")

    def read(x: Tensor, context: Tensor, mask: Tensor | None) -> Tensor:
        return attended_by(layer, layer(x, context, mask)).tokens

    for m in (7, 33):
        context, mask = draw(2, m, seed=4), torch.arange(m) < torch.tensor([m, 5])[:, None]
        tokens = read(x, context, mask)
        if tokens.shape != x.shape:
            return Finding(False, f"{tuple(tokens.shape)} came out for {tuple(x.shape)}")
        loud = torch.where(mask[..., None], context, 1e4)
        worst = max(worst, distance(read(x, loud, mask), tokens))
        worst = max(worst, distance(tokens[1:], read(x[1:], context[1:, :5], None)))
        heard = min(heard, distance(read(x, draw(2, m, seed=5), mask), tokens))
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

    It passes either way, if outputs are finite: what counts is that it is known.
    """
    middle = LENGTH // 2
    moved = _moved_by(middle, subject)
    places = moved.nonzero()[:, 0]
    reach = int((places - middle).abs().max()) if len(places) else 0
    others = int(moved.sum()) - int(moved[middle])
    if others == 0:
        return Finding(True, "no: an output depends on its own token alone")
    return Finding(True, f"yes: one token moved {others} of {LENGTH - 1} others, {reach} away")


def order_is_felt(subject: Subject) -> Finding:
    """Under rotary positions, two tokens that change places are felt by others, if any is."""
    layer, x = subject.layer(rotary=True).eval(), draw(1, LENGTH)
    here, there = LENGTH // 2, LENGTH // 2 + 1
    other, changed = x.clone(), x.clone()
    other[:, [here, there]] = x[:, [there, here]]
    changed[:, here] = draw(1, 1, seed=3)[:, 0]
    rest = [place for place in range(LENGTH) if place not in (here, there)]
    expected = attend(layer, x)[:, rest]
    moved = distance(attend(layer, other)[:, rest], expected)
    if distance(attend(layer, changed)[:, rest], expected) <= ROUNDING:
        return Finding(True, "no token is felt by another, wherever it stands")
    return Finding(
        1e-6 < moved < float("inf"), f"two tokens that changed places moved others by {moved:.2g}"
    )
