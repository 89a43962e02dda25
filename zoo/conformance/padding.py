"""Padding and batch-mates: neither may be felt by a real token."""

import torch

from zoo.conformance.subject import (
    LENGTH,
    Finding,
    Subject,
    at_most,
    attend,
    distance,
    draw,
    paddings,
    speak,
)

ROUNDING = 1e-9


def padding_is_never_felt(subject: Subject) -> Finding:
    """Perturb padded tokens, as noise and 10,000 times as loud; real outputs stay."""
    layer, x = subject.layer().eval(), draw(3, LENGTH)
    worst = 0.0
    for keep in paddings():
        expected = attend(layer, x, keep)[keep]
        for loudness in (1.0, 1e4):
            noise = loudness * draw(3, LENGTH, seed=3)
            disturbed = torch.where(keep[..., None], x, noise)
            worst = max(worst, distance(attend(layer, disturbed, keep)[keep], expected))
    return at_most(worst, ROUNDING, "real outputs moved by")


def padded_is_truncated(subject: Subject) -> Finding:
    """The real tokens of a padded sample come out as they do alone."""
    layer, x = subject.layer().eval(), draw(3, LENGTH)
    worst = 0.0
    for keep in paddings():
        for sample, kept, tokens in zip(x, keep, attend(layer, x, keep), strict=True):
            alone = attend(layer, sample[kept][None])[0]
            worst = max(worst, distance(tokens[kept], alone))
    return at_most(worst, ROUNDING, "padded against truncated:")


def nothing_real_stays_finite(subject: Subject) -> Finding:
    """Samples of padding throughout, one or all, give finite outputs, losses and gradients."""
    layer, x = subject.layer(), draw(2, LENGTH).requires_grad_()
    bad = 0
    for real in (1, 0):
        keep = (torch.arange(2) < real)[:, None].expand(-1, LENGTH)
        attended = layer(x, x, keep)
        total = attended.tokens.sum() + speak(attended)
        gradients = torch.autograd.grad(total, [x, *layer.parameters()], allow_unused=True)
        parts = [attended.tokens, *attended.losses.values(), *gradients]
        bad += sum(int((~part.isfinite()).sum()) for part in parts if part is not None)
    return Finding(bad == 0, f"{bad} entries of outputs and gradients are not finite")


def batch_mates_are_never_felt(subject: Subject) -> Finding:
    """A sample alone, and beside one a hundred times as loud."""
    layer, x = subject.layer().eval(), draw(2, LENGTH)
    loud = torch.stack([x[0], 100.0 * x[1]])
    worst = distance(attend(layer, loud)[:1], attend(layer, x[:1]))
    keep = next(paddings())[1:]
    masked = distance(
        attend(layer, loud, keep)[:1][:, keep[0]], attend(layer, x[:1], keep[:1])[:, keep[0]]
    )
    return at_most(max(worst, masked), ROUNDING, "moved by a batch-mate:")
