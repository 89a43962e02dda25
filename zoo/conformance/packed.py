"""Sequences in packed rows equal the same sequences as samples of their own."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from zoo.conformance.claimed import rejection
from zoo.conformance.configuration import SETTINGS, Configuration, Setting
from zoo.conformance.leaks import Leak, without_leaks
from zoo.conformance.tensors import LENGTH, distance, probe_loss, random_tokens
from zoo.contract import Attended

EXACT = tuple(s._replace(rounding=1e-10) for s in SETTINGS if s.dtype == torch.float64)

ENDS = (150, 300), (1, 3, 70, 150, 300), (100, 130, 150, 160, 300)
"""Ends of the sequences of three rows, which are longer than `max_len`."""

TOKEN = torch.arange(2 * LENGTH)
SEGMENTS = torch.stack([torch.bucketize(TOKEN, torch.tensor(ends), right=True) for ends in ENDS])

PADDED = (torch.tensor([[41], [30], [38]]) > TOKEN % 41) & (TOKEN < 290)
"""Padding within sequences, and behind the last."""

EFFECT = "packed and separate sequences differ by"

# A form that is known to treat padding or batches wrongly refuses segments.
check_refusal = rejection(
    "accepted segments", lambda layer: layer(random_tokens(2, 20), segments=SEGMENTS[1:, :20])
)


@without_leaks(EFFECT, EXACT)
def check_packed(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """Outputs and gradients equal every sequence alone, and losses a batch of all sequences."""
    if configuration.draws(setting):
        return
    layer = configuration.layer_for(setting, max_len=LENGTH)
    x = setting.tokens(*SEGMENTS.shape).requires_grad_()
    for padding, mask in {"without padding": None, "with padding": PADDED}.items():
        tokens = _sequences(mask)
        packed = setting.run(lambda x, _, mask: layer(x, None, mask, SEGMENTS), x, mask)
        samples = pad_sequence([x[one] for one in tokens], batch_first=True)
        real = torch.arange(samples.shape[1]) < torch.tensor([[len(at)] for _, at in tokens])
        losses = setting.run(layer, samples, real).losses
        alone = torch.cat([setting.run(layer, x[one][None]).tokens for one in tokens], dim=1)
        both = Attended(torch.cat([packed.tokens[one] for one in tokens])[None], packed.losses)
        results = []
        for result in (both, Attended(alone, losses)):
            loss, inputs = probe_loss(result), [x, *layer.parameters()]
            slopes = torch.autograd.grad(loss, inputs, materialize_grads=True)
            results.append([result.tokens, torch.stack([loss, *result.losses.values()]), *slopes])
        of_slopes = ["gradients of tokens", *["gradients of parameters"] * len(slopes)]
        names = ("outputs", "losses", *of_slopes)
        for name, actual, expected in zip(names, *results, strict=False):
            yield Leak(distance(actual, expected), f"{name} of rows {padding}")


@without_leaks(EFFECT, EXACT[:3])
def check_prefill(configuration: Configuration, setting: Setting) -> Iterator[Leak]:
    """A packed prompt, and one that continues its state, equal prompts of every sequence alone."""
    layer = configuration.layer_for(setting, max_len=LENGTH).eval()
    x, more = setting.tokens(*SEGMENTS.shape), setting.tokens(3, 20, seed=3)
    for mask in (None, PADDED):
        outputs, state = layer.prefill(x, mask, segments=SEGMENTS)
        continued, _ = layer.prefill(more, None, state, SEGMENTS[1:2, 60:80].expand(3, -1))
        for row, at in _sequences(mask):
            tokens, after = layer.prefill(x[row, at][None])
            yield Leak(distance(outputs[row, at], tokens[0]), "outputs of a prompt")
            if SEGMENTS[row, at[0]] == SEGMENTS[row, -1]:
                first, _ = layer.prefill(more[row, None, :10], None, after)
                expected = torch.cat([first, layer.prefill(more[row, None, 10:])[0]], dim=1)
                yield Leak(distance(continued[row], expected[0]), "outputs after a prompt")


def _sequences(mask: Tensor | None) -> list[tuple[int, Tensor]]:
    """The row of each sequence, and the indices of its real tokens."""
    real = torch.ones_like(PADDED) if mask is None else mask
    return [
        (row, (real[row] & (SEGMENTS[row] == number)).nonzero()[:, 0])
        for row, ends in enumerate(ENDS)
        for number in range(len(ends))
    ]
