"""The claim of a causal form: no output depends on a later token."""

from collections.abc import Iterator

import torch
from torch import Tensor

from zoo.conformance.configuration import SETTINGS, Configuration, Outcome, Setting
from zoo.conformance.leaks import Leak, gradient_leak, value_leak, without_leaks
from zoo.conformance.tensors import LENGTH, LONG, LONGER, SCATTERED, output, random_tokens
from zoo.contract import Attention

COPIES = 25  # Samples of a batch: many at once are fast, as long as they fit into the cache

# Borders in long inputs, around powers of two, which are sizes of blocks, by length.
LONG_BORDERS = {
    LONG: (1, 512, 1000, 1023, 1024, 1025, LONG - 1),
    LONGER: (256, 1280, 1536, 2048, 2049, LONGER - 1),
}  # fmt: skip

# Lengths of truncated inputs where not all are tried.
TRUNCATIONS = (1, 41, 64, 65, 128, LENGTH - 1)

EFFECT = "outputs depend on later tokens by"


@without_leaks(EFFECT, [setting for setting in SETTINGS if setting.dtype == torch.float64])
def check_every_pair(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """No output depends on a later token, in value or in gradient, whatever their positions."""
    # In each sample the tokens from another border on are replaced, padded or left out.
    layer, draws = configuration.layer_for(setting), configuration.draws(setting)
    for borders in torch.arange(1, LENGTH + 1).split(COPIES):
        leaks = _leaks_across(borders, LENGTH, layer, setting, draws)
        yield from leaks
        if max(leaks).size > setting.rounding:
            return
    if not draws:
        yield from _shorter_inputs(layer, setting)


@without_leaks(EFFECT, (Setting(), Setting(training=True)))
def check_long(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """The same with more than 1,000 and 2,000 tokens, for some borders, in both modes."""
    draws = configuration.draws(setting)
    for length, borders in LONG_BORDERS.items():
        layer = configuration.layer_for(setting, max_len=length)
        for border in borders:
            yield from _leaks_across(torch.tensor([border]), length, layer, setting, draws)


def _leaks_across(
    borders: Tensor, length: int, layer: Attention, setting: Setting, draws: bool
) -> list[Leak]:
    changes = "output {token} changes with the tokens from {sample} on"
    depends = "an output before {sample} has a gradient with respect to token {token}"
    x, past, other = _inputs(borders, setting, length)
    # A mask without padding may select other kernels, which may draw other random numbers.
    full, leaks = torch.ones_like(past), list[Leak]()
    for masks in ((None, None), (full, full)) if draws else ((None, full),):
        before, after = (
            setting.run(layer, tokens, mask).tokens
            for tokens, mask in zip((x, other), masks, strict=True)
        )
        leaks += [
            value_leak(before, after, past, changes, borders),
            gradient_leak(x, before, past, ~past, depends, borders),
            gradient_leak(other, after, past, ~past, depends, borders),
        ]
    return leaks


def _shorter_inputs(layer: Attention, setting: Setting) -> Iterator[Leak]:
    borders = torch.arange(1, LENGTH + 1, 6)
    x, past, other = _inputs(borders, setting)
    mask = SCATTERED[borders % len(SCATTERED)]
    before = setting.run(layer, x, mask).tokens
    after = setting.run(layer, other, mask ^ ~past).tokens
    changes = "output {token} changes with the padding from {sample} on"
    yield value_leak(before, after, past & mask, changes, borders)
    full = setting.run(layer, x[:1]).tokens
    # Without gradients, as layers are used.
    for border in range(1, LENGTH) if setting == Setting() else TRUNCATIONS:
        with torch.no_grad():
            truncated = setting.run(layer, x[:1, :border]).tokens
        changes = f"output {{token}} changes where the tokens from {border} on are left out"
        yield value_leak(full[:, :border], truncated, past[-1:, :border], changes)


def _inputs(borders: Tensor, setting: Setting, length: int = LENGTH) -> tuple[Tensor, ...]:
    # In the copy, tokens from the border on are noise, of the same or another scale, or zeros.
    x = setting.tokens(len(borders), length, seed=int(borders[0]))
    past = torch.arange(length) < borders[:, None]
    scales = torch.tensor([1.0, 1e3, 0.0, 1e-3], dtype=x.dtype)[borders % 4]
    noise = scales[:, None, None] * setting.tokens(len(borders), length, seed=3)
    other = torch.where(past[..., None], x, noise)
    return x.requires_grad_(), past, other.requires_grad_()


def check_fp32(configuration: Configuration) -> Outcome:
    """The same in fp32, where rounding of a sum over all tokens can change earlier outputs."""
    layer, changed = configuration.layer().float().eval(), 0
    for shift in (0, 2):
        for borders in torch.arange(1, LENGTH).split(COPIES):
            past = torch.arange(LENGTH) < borders[:, None]
            scale = torch.tensor([0.1, 1.0, 3.0, 10.0, 30.0, 100.0])[borders % 6]
            factor = torch.tensor([0.0, 1e-3, 10.0, 1e3])[(borders // 6 + shift) % 4]
            x = scale[:, None, None] * random_tokens(len(borders)).float()
            other = torch.where(past[..., None], x, factor[:, None, None] * x)
            before, after = output(layer, x), output(layer, other)
            bound = 1e-5 * torch.where(past[..., None], before, 0.0).abs().amax((1, 2))
            # Negated, so that a change of NaN counts.
            changed += int((~((after - before).abs() <= bound[:, None, None]))[past].sum())
    detail = f"{changed} entries of earlier outputs change by more than 1e-05 of the largest"
    return Outcome(changed == 0, detail)
