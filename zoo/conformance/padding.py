"""Padding and batch-mates: neither may be felt by a real token."""

import torch

from zoo.conformance.subject import (
    LENGTH,
    SITUATIONS,
    Finding,
    Subject,
    attend,
    attended,
    distance,
    draw,
    everywhere,
    paddings,
    speak,
)


def padding_is_never_felt(subject: Subject) -> Finding:
    """Perturb padded tokens, as noise and 10,000 times as loud; real outputs and losses stay."""
    x, moved = draw(3, LENGTH), {}
    for situation in SITUATIONS:
        layer, worst = subject.layer_in(situation), 0.0
        for keep in paddings():
            expected = situation.attend(layer, x, keep)
            for loudness in (1.0, 1e4):
                noise = loudness * draw(3, LENGTH, seed=3)
                found = situation.attend(layer, torch.where(keep[..., None], x, noise), keep)
                worst = max(worst, distance(found.tokens[keep], expected.tokens[keep]))
                for name, loss in expected.losses.items():
                    worst = max(worst, distance(found.losses[name], loss))
        moved[situation] = worst
    return everywhere(moved, "real outputs moved by")


def padded_is_truncated(subject: Subject) -> Finding:
    """The real tokens of a padded sample come out as they do alone."""
    x, moved = draw(3, LENGTH), {}
    for situation in SITUATIONS:
        if situation.training and subject.traits.stochastic:
            continue
        layer, worst = subject.layer_in(situation), 0.0
        for keep in paddings():
            padded = situation.attend(layer, x, keep).tokens
            for sample, kept, tokens in zip(x, keep, padded, strict=True):
                alone = situation.attend(layer, sample[kept][None]).tokens[0]
                worst = max(worst, distance(tokens[kept], alone))
        moved[situation] = worst
    return everywhere(moved, "padded against truncated:")


def nothing_real_stays_finite(subject: Subject) -> Finding:
    """Samples of padding throughout, one or all, give finite outputs, losses and gradients."""
    layer, x = subject.layer(), draw(2, LENGTH).requires_grad_()
    bad = 0
    for real in (1, 0):
        keep = (torch.arange(2) < real)[:, None].expand(-1, LENGTH)
        found = attended(layer, x, keep)
        total = found.tokens.sum() + speak(found)
        gradients = torch.autograd.grad(total, [x, *layer.parameters()], allow_unused=True)
        parts = [found.tokens, *found.losses.values(), *gradients]
        bad += sum(int((~part.isfinite()).sum()) for part in parts if part is not None)
    return Finding(bad == 0, f"{bad} entries of outputs and gradients are not finite")


def batch_mates_are_never_felt(subject: Subject) -> Finding:
    """A sample beside another, beside one a hundred times as loud, and alone."""
    x, moved = draw(2, LENGTH), {}
    loud = torch.stack([x[0], 100.0 * x[1]])
    padding = next(paddings())[1:]
    for situation in SITUATIONS:
        layer, worst = subject.layer_in(situation), 0.0
        for keep in (None, padding):
            real = slice(None) if keep is None else keep[0]
            beside, louder = (situation.attend(layer, one, keep).tokens[0] for one in (x, loud))
            worst = max(worst, distance(louder[real], beside[real]))
        moved[situation] = worst
    layer = subject.layer().eval()
    for keep in (None, padding):
        own, real = (None, slice(None)) if keep is None else (keep[:1], keep[0])
        alone = distance(attend(layer, loud, keep)[0][real], attend(layer, x[:1], own)[0][real])
        moved[SITUATIONS[0]] = max(moved[SITUATIONS[0]], alone)
    return everywhere(moved, "moved by a batch-mate:")
