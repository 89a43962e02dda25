"""Which tokens an output depends on, and whether it depends on their order and on the context."""

from dataclasses import replace

import torch
from torch import Tensor

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome
from zoo.conformance.tensors import LENGTH, distance, output, random_tokens


def report_token_mixing(configuration: Configuration) -> Outcome:
    """Whether output i depends on a token j != i, and how far away; either passes.

    The check fails only if outputs are not finite.
    """
    middle = LENGTH // 2
    distances = (_dependent_on(middle, configuration).nonzero()[:, 0] - middle).abs()
    others = int(distances.count_nonzero())
    if others == 0:
        return Outcome(True, "no: an output depends on its own token only")
    return Outcome(
        True,
        f"yes: {others} of {LENGTH - 1} other outputs depend on one token, up to "
        f"{int(distances.max())} away",
    )


def check_position_sensitivity(configuration: Configuration) -> Outcome:
    """Under rotary positions, other outputs change if two neighbouring tokens are exchanged.

    A variant whose outputs depend on no other token passes.
    """
    layer, x = configuration.layer(rotary=True).eval(), random_tokens(1)
    first, second = LENGTH // 2, LENGTH // 2 + 1
    exchanged = x.clone()
    exchanged[:, [first, second]] = x[:, [second, first]]
    others = [position for position in range(LENGTH) if position not in (first, second)]
    before, after, replaced = (
        output(layer, tokens)[:, others] for tokens in (x, exchanged, _replaced(x, first))
    )
    if distance(replaced, before) <= ROUNDING:
        return Outcome(True, "with rotary positions, no output depends on another token")
    change = distance(after, before)
    return Outcome(
        1e-6 < change < float("inf"),
        f"with rotary positions, exchanging two tokens changes other outputs by {change:.2g}",
    )


def check_causal_form(configuration: Configuration) -> Outcome:
    """A later output that depends on a token in the bidirectional form does in the causal form."""
    missing, dependent, own_token = 0, 0, True
    for position in (0, 1, LENGTH // 3, LENGTH // 2, LENGTH - 2):
        forms = configuration, replace(configuration, causal=False)
        causal, bidirectional = (_dependent_on(position, form)[position:] for form in forms)
        missing += int((bidirectional & ~causal).sum())
        dependent += int(causal.sum())
        own_token &= bool(causal[0])
    return Outcome(
        own_token and missing == 0,
        f"{dependent} outputs depend on one of five tokens; {missing} do in the bidirectional form "
        "only",
    )


def check_cross_attention(configuration: Configuration) -> Outcome:
    """Outputs depend on the real tokens of a shorter or longer context, and not on its padding.

    Padded context tokens must not change outputs, and outputs must be those without padding.
    """
    layer, x = configuration.layer().eval(), random_tokens(2, 20)
    leak, effect = 0.0, float("inf")
    for m in (7, 33):
        context, mask = random_tokens(2, m, seed=4), torch.arange(m) < torch.tensor([[m], [5]])
        tokens = layer(x, context, mask).tokens
        if tokens.shape != x.shape:
            return Outcome(False, f"output of shape {tuple(tokens.shape)} for {tuple(x.shape)}")
        large = layer(x, torch.where(mask[..., None], context, 1e4), mask).tokens
        truncated = layer(x[1:], context[1:, :5], None).tokens
        other = layer(x, random_tokens(2, m, seed=5), mask).tokens
        leak = max(leak, distance(large, tokens), distance(tokens[1:], truncated))
        effect = min(effect, distance(other, tokens))
    return Outcome(
        leak <= ROUNDING and effect > 1e-6,
        f"padded context tokens change outputs by {leak:.2g}, another context by {effect:.2g}",
    )


def _dependent_on(position: int, configuration: Configuration) -> Tensor:
    """Which outputs change with the token at `position`; an error if one is not finite."""
    layer, x = configuration.layer().eval(), random_tokens(1)
    change = (output(layer, _replaced(x, position)) - output(layer, x)).abs().amax(-1)[0]
    if not change.isfinite().all():
        raise ArithmeticError("outputs are not finite")
    return change > 1e-12


def _replaced(x: Tensor, position: int) -> Tensor:
    """`x` with another token at `position`."""
    return x.index_copy(1, torch.tensor([position]), random_tokens(1, 1, seed=3))
