"""Outputs at real tokens depend neither on padding nor on the other samples of a batch."""

from collections.abc import Iterator

import torch

from zoo.conformance.configuration import Configuration, Outcome, Setting, all_finite
from zoo.conformance.leaks import Leak, gradient_leak, separating_masks, value_leak, verdict
from zoo.conformance.tensors import (
    LENGTH,
    SCATTERED,
    distance,
    padding_masks,
    random_tokens,
    with_gradients,
)

SAMPLES = 4


def check_invariance(configuration: Configuration) -> Outcome:
    """No output at a real token depends on a padded one, whichever positions the two have.

    Padded tokens become noise, of the same scale and 10,000 times larger: outputs at real tokens
    and losses must not change, and have no gradient with respect to padded tokens.
    """
    return verdict(_padding_leaks, configuration, "outputs depend on padding by")


def _padding_leaks(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    layer = configuration.layer_for(setting)
    mask = torch.cat([*padding_masks(), separating_masks(LENGTH)])
    x = random_tokens(len(mask)).requires_grad_()
    before = setting.run(layer, x, mask)
    changes = "output {token} of sample {sample} changes with its padded tokens"
    for scale in (1.0, 1e4):
        noise = scale * random_tokens(len(mask), seed=3)
        after = setting.run(layer, torch.where(mask[..., None], x, noise), mask)
        yield value_leak(before.tokens, after.tokens, mask, changes)
        for name, loss in before.losses.items():
            yield Leak(distance(after.losses[name], loss), f"{name} changes with padded tokens")
    depends = "outputs or losses have a gradient with respect to token {token} of sample {sample}"
    losses = before.losses.values()
    yield gradient_leak(x, before.tokens, mask, ~mask, f"real {depends}", losses=losses)


def check_truncation(configuration: Configuration) -> Outcome:
    """The outputs at the real tokens of a padded sample are those of the sample without padding."""
    return verdict(_truncations, configuration, "padded and truncated samples differ by")


def _truncations(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    if setting.training and configuration.traits.stochastic:
        return
    layer, x = configuration.layer_for(setting), random_tokens(3)
    for mask in padding_masks():
        padded = setting.run(layer, x, mask).tokens
        for index, (sample, real, tokens) in enumerate(zip(x, mask, padded, strict=True)):
            truncated = setting.run(layer, sample[real][None]).tokens[0]
            yield Leak(distance(tokens[real], truncated), f"sample {index}")


def check_fully_masked_input(configuration: Configuration) -> Outcome:
    """Samples without a real token, one or all, give finite outputs, losses and gradients."""
    layer, x, results = configuration.layer(), random_tokens(2).requires_grad_(), []
    for real in (1, 0):
        mask = (torch.arange(2) < real)[:, None].expand(-1, LENGTH)
        results += with_gradients(layer, x, layer(x, mask=mask))
    return all_finite(results)


def check_batch_independence(configuration: Configuration) -> Outcome:
    """No output depends on another sample of the batch, whichever samples and positions they are.

    Of each two samples, one gets other tokens, a hundred times larger, and other padding, also of
    another amount: outputs of the other must not change, and have no gradient with respect to those
    tokens. In evaluation, a batch of one sample must give the same outputs.
    """
    return verdict(_batch_leaks, configuration, "outputs depend on other samples by")


def _batch_leaks(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    layer = configuration.layer_for(setting)
    x, noise = (random_tokens(SAMPLES, seed=seed) for seed in (2, 3))
    everywhere = torch.ones(SAMPLES, LENGTH, dtype=torch.bool)
    changes = "output {token} of sample {sample} changes with other samples"
    depends = "others have a gradient with respect to token {token} of sample {sample}"
    masks, others = (SCATTERED[(torch.arange(SAMPLES) + i) % len(SCATTERED)] for i in (0, 1))
    for mask in (None, masks):
        real = everywhere if mask is None else mask
        before = setting.run(layer, x.requires_grad_(), mask).tokens
        for fixed in separating_masks(SAMPLES)[..., None] & everywhere:
            changed = torch.where(fixed[..., None], x, 100 * noise)
            other = None if mask is None else torch.where(fixed, mask, others.flip(1))
            after = setting.run(layer, changed, other).tokens
            yield value_leak(before, after, fixed & real, changes)
            yield gradient_leak(x, before, fixed & real, ~fixed, depends)
        if not setting.training:
            single = setting.run(layer, x[:1], None if mask is None else mask[:1]).tokens
            changes_alone = "output {token} of sample 0 changes in a batch of one"
            yield value_leak(before[:1], single, real[:1], changes_alone)
