"""Outputs at real tokens depend neither on padding nor on the other samples of a batch."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from zoo.conformance.configuration import FEW_SETTINGS, Configuration, Outcome, Setting, all_finite
from zoo.conformance.leaks import Leak, gradient_leak, separating_masks, value_leak, verdict
from zoo.conformance.tensors import (
    LENGTH,
    LONG,
    SCATTERED,
    distance,
    padding_masks,
    random_tokens,
    with_gradients,
)
from zoo.contract import Attended

BATCHES = (4, LENGTH), (8, 24)
LARGE_BATCHES = (40, 16), (160, 16)
"""Samples and tokens of the batches in which every two samples are compared."""

POISON = float("nan"), float("inf"), -float("inf")
"""What padded tokens may hold, one after the other."""


def check_invariance(configuration: Configuration) -> Outcome:
    """No output at a real token depends on a padded one, whichever positions the two have.

    Padded tokens become noise, of the same scale and 10,000 times larger: what `forward` gives for
    real tokens and losses must not change, and have no gradient with respect to padded tokens. They
    become NaN and infinity: what a call gives, and all gradients, must not change.
    """
    return verdict(_padding_leaks, configuration, "outputs depend on padding by")


def check_long(configuration: Configuration) -> Outcome:
    """The same with more than 1,000 tokens, for three masks."""
    leaks = partial(_padding_leaks, mask=padding_masks(LONG)[1])
    return verdict(leaks, configuration, "outputs depend on padding by", FEW_SETTINGS)


def _padding_leaks(
    configuration: Configuration, setting: Setting, mask: Tensor | None = None
) -> Iterator[Leak]:
    if mask is None:
        mask = torch.cat([*padding_masks(), separating_masks(LENGTH)])
    layer = configuration.layer_for(setting, max_len=max(160, mask.shape[1]))

    def forward(x: Tensor, context: Tensor | None, mask: Tensor) -> Attended:
        """The function of the variant: a call replaces padded tokens before it."""
        return layer.forward(x, x if context is None else context, mask)

    x = random_tokens(*mask.shape).requires_grad_()
    before = setting.run(forward, x, mask)
    changes = "output {token} of sample {sample} changes with its padded tokens"
    noise = random_tokens(*mask.shape, seed=3)
    poison = torch.tensor(POISON, dtype=x.dtype)[torch.arange(mask.shape[1]) % len(POISON)]
    for run, padding in (forward, noise), (forward, 1e4 * noise), (layer, poison[:, None]):
        after = setting.run(run, torch.where(mask[..., None], x, padding), mask)
        yield value_leak(before.tokens, after.tokens, mask, changes)
        for name, loss in before.losses.items():
            yield Leak(distance(after.losses[name], loss), f"{name} changes with padded tokens")
    depends = "outputs or losses have a gradient with respect to token {token} of sample {sample}"
    losses = before.losses.values()
    yield gradient_leak(x, before.tokens, mask, ~mask, f"real {depends}", losses=losses)
    results = (with_gradients(layer, x, result, mask)[1:] for result in (before, after))
    change = max(map(distance, *results))
    yield Leak(change, "losses or gradients change with NaN at padded tokens")


def check_truncation(configuration: Configuration) -> Outcome:
    """The outputs at the real tokens of a padded sample equal the sample without padding."""
    return verdict(_truncations, configuration, "padded and truncated samples differ by")


def _truncations(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    if configuration.draws(setting):
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


def check_empty_batch(configuration: Configuration) -> Outcome:
    """A batch of no samples gives no outputs, finite losses and finite gradients, in both modes."""
    results, layer = [], configuration.layer()
    for training, mask in product((True, False), (None, SCATTERED[:0])):
        x = random_tokens(0).requires_grad_()
        result = layer.train(training)(x, mask=mask)
        if result.tokens.shape != x.shape:
            return Outcome(False, f"outputs of shape {tuple(result.tokens.shape)}")
        results += with_gradients(layer, x, result)
    return all_finite(results)


def check_batch_independence(configuration: Configuration) -> Outcome:
    """No output depends on another sample of the batch, whichever samples and positions they are.

    Of each two samples, one gets other tokens, a hundred times larger, and other padding, also of
    another amount: outputs of the other must not change, and have no gradient with respect to those
    tokens. A batch of one sample must give the same outputs, unless they depend on random numbers.
    """
    leaks = partial(_batch_leaks, batches=BATCHES)
    return verdict(leaks, configuration, "outputs depend on other samples by")


def check_large_batches(configuration: Configuration) -> Outcome:
    """The same in batches of 40 and 160 samples without padding."""
    leaks = partial(_batch_leaks, batches=LARGE_BATCHES, padded=False)
    return verdict(leaks, configuration, "outputs depend on other samples by", FEW_SETTINGS)


def _batch_leaks(
    configuration: Configuration,
    setting: Setting,
    batches: Iterable[tuple[int, int]],
    padded: bool = True,
) -> Iterator[Leak]:
    for samples, length in batches:
        yield from _leaks_between(samples, length, configuration, setting, padded)


def _leaks_between(
    samples: int, length: int, configuration: Configuration, setting: Setting, padded: bool
) -> Iterator[Leak]:
    layer, draws = configuration.layer_for(setting), configuration.draws(setting)
    x, noise = (random_tokens(samples, length, seed=seed) for seed in (2, 3))
    everywhere = torch.ones(samples, length, dtype=torch.bool)
    scattered = padding_masks(length)[1]
    changes = "output {token} of sample {sample} changes with other samples"
    depends = "others have a gradient with respect to token {token} of sample {sample}"
    masks, others = (scattered[(torch.arange(samples) + i) % len(scattered)] for i in (0, 1))
    for mask in (None, masks) if padded else (None,):
        real = everywhere if mask is None else mask
        before = setting.run(layer, x.requires_grad_(), mask).tokens
        for fixed in separating_masks(samples)[..., None] & everywhere:
            changed = torch.where(fixed[..., None], x, 100 * noise)
            # Other padding may change how many weights there are to drop.
            other = mask
            if mask is not None and not setting.dropout:
                other = torch.where(fixed, mask, others.flip(1))
            after = setting.run(layer, changed, other).tokens
            yield value_leak(before, after, fixed & real, changes)
            yield gradient_leak(x, before, fixed & real, ~fixed, depends)
        if not draws:
            single = setting.run(layer, x[:1], None if mask is None else mask[:1]).tokens
            changes_alone = "output {token} of sample 0 changes in a batch of one"
            yield value_leak(before[:1], single, real[:1], changes_alone)
