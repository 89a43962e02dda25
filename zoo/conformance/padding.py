"""Outputs at real tokens depend neither on padding nor on the other samples of a batch."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from zoo.conformance.configuration import FEW, SETTINGS, Configuration, Outcome, Setting, all_finite
from zoo.conformance.leaks import Leak, gradient_leak, separating_masks, value_leak, without_leaks
from zoo.conformance.tensors import (
    LENGTH,
    LONG,
    LONGER,
    SCATTERED,
    distance,
    function_of,
    padding_masks,
    poison,
    random_tokens,
    with_gradients,
)
from zoo.contract import Attention

BATCHES = (4, LENGTH), (8, 24)
# Samples and tokens of the batches in which every two samples are compared.
LARGE_BATCHES = (40, 16), (160, 16)

SAMPLES = 50  # Padded samples of a batch: many at once are fast, as long as they fit into the cache

# Samples, tokens and width of a batch that `zoo.recompute` divides on a CPU, as larger ones.
LARGEST = 40, 128, 64


@without_leaks("outputs depend on padding by")
def check_invariance(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """No output at a real token, and no loss, depends on a padded one, in value or in gradient."""
    mask = torch.cat([*padding_masks(), separating_masks(LENGTH)])
    return _padding_leaks(configuration, setting, mask)


@without_leaks("outputs depend on padding by", FEW)
def check_long(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """The same with more than 1,000 tokens, for three masks; for one, with more than 2,000."""
    yield from _padding_leaks(configuration, setting, padding_masks(LONG)[1])
    if setting == Setting():
        yield from _padding_leaks(configuration, setting, padding_masks(LONGER)[1][:1])


def _padding_leaks(configuration: Configuration, setting: Setting, mask: Tensor) -> Iterator[Leak]:
    # `forward` gets noise for padded tokens, a call also NaN and infinity.
    layer = configuration.layer_for(setting, max_len=max(setting.max_len, mask.shape[1]))
    forward = function_of(layer)
    x = setting.tokens(*mask.shape).requires_grad_()
    before = setting.run(forward, x, mask)
    changes = "output {token} of sample {sample} changes with its padded tokens"
    noise = setting.tokens(*mask.shape, seed=3)
    not_finite = poison(mask.shape[1])
    for run, padding in (forward, noise), (forward, 1e4 * noise), (layer, not_finite):
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


@without_leaks("padded and truncated samples differ by")
def check_truncation(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """Outputs and gradients of a padded sample equal the sample without padding."""
    # Of every number of real tokens, and after calls of layers of other sizes, precisions and
    # forms.
    if configuration.draws(setting):
        return
    if setting == Setting():
        yield from _after_others(configuration)
    layer, masks = configuration.layer_for(setting), torch.cat(padding_masks())
    yield from _truncated(layer, setting, masks)
    if setting in SETTINGS[:2]:  # masks of every count, at the end and elsewhere
        rank = torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(6)).argsort(1)
        count = torch.arange(1, LENGTH + 1)[:, None]
        masks = torch.cat([torch.arange(LENGTH) < count, (rank < count)[::5]])
        yield from _truncated(layer, setting, masks)


def _truncated(layer: Attention, setting: Setting, masks: Tensor) -> Iterator[Leak]:
    x = setting.tokens(1).expand(len(masks), -1, -1)
    # Gradients under autocast differ by the rounding of products of other shapes.
    gradients = setting.training and not setting.autocast
    for samples, real in zip(x.split(SAMPLES), masks.split(SAMPLES), strict=True):
        padded = _results(layer, setting, samples, real, gradients=gradients)
        for index, mask in enumerate(real):
            sample = samples[index, mask][None]
            alone = _results(layer, setting, sample, None, gradients=gradients)
            for name, both, one in zip(("outputs", "gradients"), padded, alone, strict=False):
                where = f"{name} of {int(mask.sum())} real tokens"
                yield Leak(distance(both[index, mask], one[0]), where)


def _results(
    layer: Attention, setting: Setting, x: Tensor, mask: Tensor | None, *, gradients: bool
) -> list[Tensor]:
    inputs = [x.clone().requires_grad_(gradients), *layer.parameters()]
    with torch.set_grad_enabled(gradients):
        tokens = setting.run(layer, inputs[0], mask).tokens
        tokens = tokens if mask is None else tokens.masked_fill(~mask[..., None], 0.0)
    if not gradients:
        return [tokens]
    squares = tokens.double().square().sum()
    return [tokens, *torch.autograd.grad(squares, inputs, materialize_grads=True)]


def _after_others(configuration: Configuration) -> Iterator[Leak]:
    # A layer that keeps a table by length alone then reads another layer's, except for the padded
    # sample: no other layer has its length.
    length, setting = 170, Setting(max_len=175)
    layer, x = configuration.layer_for(setting), setting.tokens(1, length)
    others = {
        "max_len": configuration.layer_for(setting, max_len=300),
        "precision": configuration.layer_for(setting._replace(dtype=torch.float32)),
        "heads": configuration.layer_for(setting, heads=4),
    }
    if len(configuration.traits.forms) > 1:
        others["form"] = configuration.layer_for(setting, causal=not configuration.causal)
    for n, (name, other) in enumerate(others.items(), length - len(others)):
        other(x[:, :n].to(next(other.parameters(), x).dtype))
        truncated = setting.run(layer, x[:, :n]).tokens
        padded = setting.run(layer, x, (torch.arange(length) < n)[None]).tokens
        yield Leak(distance(padded[:, :n], truncated), f"after a call with another {name}")


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


@without_leaks("outputs depend on other samples by")
def check_batch_independence(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """No output depends on another sample of the batch, in value or in gradient."""
    for samples, length in BATCHES:
        yield from _leaks_between(samples, length, configuration, setting)


@without_leaks("outputs depend on other samples by", FEW)
def check_large_batches(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """The same in large batches; one equals two smaller ones, with gradients."""
    for samples, length in LARGE_BATCHES:
        yield from _leaks_between(samples, length, configuration, setting)
    # Sums of gradients over samples are rounded to bf16 under autocast.
    if not (setting.autocast or configuration.draws(setting)):
        yield from _divided(configuration, setting)


def _divided(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    samples, length, dim = LARGEST
    setting = setting._replace(dim=dim, heads=4, max_len=length)
    layer, x = configuration.layer_for(setting), setting.tokens(samples, length)
    count = torch.arange(length - samples, length)[:, None]
    mask = padding_masks(length)[1].repeat(samples, 1)[:samples] & (torch.arange(length) < count)
    for real in (None, mask):
        whole, *parts = (
            _results(layer, setting, x[part], real if real is None else real[part], gradients=True)
            for part in (slice(None), slice(13), slice(13, None))
        )
        for index, (both, first, second) in enumerate(zip(whole, *parts, strict=True)):
            expected = torch.cat([first, second]) if index < 2 else first + second
            name = ("outputs", "gradients of tokens", "gradients of parameters")[min(index, 2)]
            yield Leak(distance(both, expected), f"{name} of {samples} samples and of two parts")


def _leaks_between(
    samples: int, length: int, configuration: Configuration, setting: Setting
) -> Iterator[Leak]:
    # Other samples get other tokens and other padding. A batch of one gives the same outputs.
    layer, draws = configuration.layer_for(setting), configuration.draws(setting)
    x, noise = (setting.tokens(samples, length, seed=seed) for seed in (2, 3))
    everywhere = torch.ones(samples, length, dtype=torch.bool)
    scattered = padding_masks(length)[1]
    changes = "output {token} of sample {sample} changes with other samples"
    depends = "others have a gradient with respect to token {token} of sample {sample}"
    masks, others = (scattered[(torch.arange(samples) + i) % len(scattered)] for i in (0, 1))
    for mask in (None, masks) if samples < 100 else (None,):
        real = everywhere if mask is None else mask
        before = setting.run(layer, x.requires_grad_(), mask).tokens
        sets = separating_masks(samples)
        if mask is not None and samples > max(BATCHES)[0]:
            # The first samples and the others, which come in a second part if there are parts.
            sets = sets[len(sets) // 2 - 1 :: len(sets) // 2]
        for fixed in sets[..., None] & everywhere:
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
