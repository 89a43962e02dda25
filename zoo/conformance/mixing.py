"""Dependence of an output on other tokens, on their order and on the context."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, Setting
from zoo.conformance.leaks import Leak, without_leaks
from zoo.conformance.tensors import LENGTH, distance, function_of, output, poison, random_tokens
from zoo.registry import UserError

IGNORED = 1e-6  # A change of outputs that is no effect of the tokens that were changed

CONTEXTS = (20, 1), (20, 7), (20, 20), (37, 33), (9, LENGTH)


def report_token_mixing(configuration: Configuration) -> Outcome:
    # The check fails only if outputs are not finite.
    middle = LENGTH // 2
    distances = (_dependent_on(middle, configuration).nonzero()[:, 0] - middle).abs()
    if not (others := int(distances.count_nonzero())):
        return Outcome(True, "no: an output depends on no other token")
    detail = f"yes: {others} of {LENGTH - 1} other outputs depend on one token"
    return Outcome(True, f"{detail}, up to {int(distances.max())} away")


def check_position_sensitivity(configuration: Configuration) -> Outcome:
    """Under rotary positions, other outputs change if two neighbouring tokens are exchanged."""
    # In the bidirectional form equal tokens have different outputs: the query has a position, too.
    try:
        layer, x = configuration.layer(rotary=True).eval(), random_tokens(1)
    except UserError as error:
        return Outcome(True, f"refuses rotary positions: {error}")
    first, second = LENGTH // 2, LENGTH // 2 + 1
    exchanged = x.clone()
    exchanged[:, [first, second]] = x[:, [second, first]]
    others = [position for position in range(LENGTH) if position not in (first, second)]
    before, after, replaced = (
        output(layer, tokens)[:, others] for tokens in (x, exchanged, _replaced(x, first))
    )
    if distance(replaced, before) <= ROUNDING:
        return Outcome(True, "with rotary positions, no output depends on another token")
    change, exchanged[:, second] = distance(after, before), exchanged[:, first]
    detail = f"with rotary positions, exchanging two tokens changes other outputs by {change:.2g}"
    equal = output(layer, exchanged)
    if not configuration.causal and distance(equal[:, first], equal[:, second]) <= IGNORED:
        return Outcome(False, f"{detail}; equal tokens have equal outputs: rotate queries, too")
    if change <= IGNORED:
        detail += "; apply_rotary to queries and keys, or raise Unsupported if size.rotary"
    return Outcome(IGNORED < change < float("inf"), detail)


def check_causal_form(configuration: Configuration) -> Outcome:
    """A later output that depends on a token in the bidirectional form does in the causal form."""
    # Each output depends on its token, also where there is no bidirectional form.
    # Without a bidirectional form, the causal one is compared with itself.
    other = replace(configuration, causal=not configuration.traits.bidirectional)
    missing, dependent, own_token = 0, 0, True
    for position in (0, 1, LENGTH // 3, LENGTH // 2, LENGTH - 2):
        causal, reference = (
            _dependent_on(position, form)[position:] for form in (configuration, other)
        )
        missing += int((reference & ~causal).sum())
        dependent += int(causal.sum())
        own_token &= bool(causal[0])
    detail = f"{dependent} outputs depend on one of five tokens; {missing} do in the bidirectional"
    return Outcome(own_token and missing == 0, f"{detail} form only")


@without_leaks("outputs depend wrongly on the context by")
def check_cross_attention(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """Outputs depend on the real tokens of a context of any length, and not on its padding."""
    setting = setting._replace(short_conv=0)
    layer, draws = configuration.layer_for(setting), configuration.draws(setting)
    for n, m in CONTEXTS:
        x, context, other = (setting.tokens(5, size, seed=i) for i, size in enumerate((n, m, m)))
        mask = _context_mask(m)
        for padding in (None, mask):
            tokens = setting.run(layer, x, padding, context).tokens
            replaced = setting.run(layer, x, padding, other).tokens
            if not distance(replaced, tokens) > IGNORED:
                yield Leak(float("inf"), f"another context of {m} tokens changes nothing")
        for run, held in (function_of(layer), torch.tensor(1e4)), (layer, poison(m)):
            read = setting.run(run, x, mask, torch.where(mask[..., None], context, held)).tokens
            yield Leak(distance(read, tokens), f"padding in a context of {m} tokens")
        for i, real in enumerate(() if draws else mask):
            truncated = setting.run(layer, x[i, None], None, context[i, real][None]).tokens
            where = f"a context of {m} tokens without its padding, sample {i}"
            yield Leak(distance(tokens[i, None], truncated), where)


def _context_mask(m: int) -> Tensor:
    position = torch.arange(m)
    after, before = position < min(5, m), position >= m // 3
    between = (position % 3 > 0) | (position == 0)
    ends = (position >= m // 4) & (position < m - m // 4)
    return torch.stack([position >= 0, after, before, between, ends])


def _dependent_on(position: int, configuration: Configuration) -> Tensor:
    layer, x = configuration.layer().eval(), random_tokens(1)
    change = (output(layer, _replaced(x, position)) - output(layer, x)).abs().amax(-1)[0]
    if not change.isfinite().all():
        raise ArithmeticError("outputs are not finite")
    return change > 1e-12


def _replaced(x: Tensor, position: int) -> Tensor:
    return x.index_copy(1, torch.tensor([position]), random_tokens(1, 1, seed=3))
