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
    probe_loss,
)


def padding_is_never_felt(subject: Subject) -> Finding:
    """Perturb padded tokens, as noise and 10,000 times as loud; real outputs and losses stay."""
    x, moved = draw(3, LENGTH), {}
    for situation in SITUATIONS:
        layer, worst = subject.layer_in(situation), 0.0
        for mask in paddings():
            expected = situation.attend(layer, x, mask)
            for loudness in (1.0, 1e4):
                noise = loudness * draw(3, LENGTH, seed=3)
                found = situation.attend(layer, torch.where(mask[..., None], x, noise), mask)
                worst = max(worst, distance(found.tokens[mask], expected.tokens[mask]))
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
        for mask in paddings():
            padded = situation.attend(layer, x, mask).tokens
            for sample, kept, tokens in zip(x, mask, padded, strict=True):
                alone = situation.attend(layer, sample[kept][None]).tokens[0]
                worst = max(worst, distance(tokens[kept], alone))
        moved[situation] = worst
    return everywhere(moved, "padded against truncated:")


def nothing_real_stays_finite(subject: Subject) -> Finding:
    """Samples of padding throughout, one or all, give finite outputs, losses and gradients."""
    layer, x = subject.layer(), draw(2, LENGTH).requires_grad_()
    bad = 0
    for real in (1, 0):
        mask = (torch.arange(2) < real)[:, None].expand(-1, LENGTH)
        found = attended(layer, x, mask)
        total = found.tokens.sum() + probe_loss(found)
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
        for mask in (None, padding):
            real = slice(None) if mask is None else mask[0]
            beside, louder = (situation.attend(layer, one, mask).tokens[0] for one in (x, loud))
            worst = max(worst, distance(louder[real], beside[real]))
        moved[situation] = worst
    layer = subject.layer().eval()
    for mask in (None, padding):
        own, real = (None, slice(None)) if mask is None else (mask[:1], mask[0])
        alone = distance(attend(layer, loud, mask)[0][real], attend(layer, x[:1], own)[0][real])
        moved[SITUATIONS[0]] = max(moved[SITUATIONS[0]], alone)
    return everywhere(moved, "moved by a batch-mate:")
