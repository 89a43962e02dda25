"""Packed rows: what `segments` may be, and what takes them."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.packed import Packed, positions_in, segments_of
from zoo.post_norm import PostNormLayer

SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 4, 4, 4, 4], [2] * 9])
SEQUENCES = [(0, slice(0, 3)), (0, slice(3, 5)), (0, slice(5, 9)), (1, slice(0, 9))]


def create(name: str = "softmax", **options) -> zoo.Attention:
    torch.manual_seed(0)
    return zoo.create(name, dim=16, heads=2, max_len=9, **options).double()


def tokens(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_segments_are_made_of_cu_seqlens_and_positions_of_segments():
    assert segments_of(torch.tensor([0, 3, 4, 6])).tolist() == [[0, 0, 0, 1, 2, 2]]
    assert positions_in(SEGMENTS).tolist() == [[0, 1, 2, 0, 1, 0, 1, 2, 3], [*range(9)]]


@pytest.mark.parametrize("lengths", [[700, 30, 200, 1, 1, 350, 2, 90, 1], [64] * 40, [1]])
def test_less_than_half_of_what_is_computed_is_padding(lengths):
    row = segments_of(F.pad(torch.tensor(lengths).cumsum(0), (1, 0)))
    parts = Packed(row, None).parts
    assert sum(part.place.numel() for part in parts) < 2 * row.numel()
    assert len(parts) <= max(lengths).bit_length()
    assert (len({*lengths}) > 1) or parts[0].mask is None  # which allows fast kernels


WRONG = {
    "dtype torch.float64": SEGMENTS.double(), r"shape \(2, 5\)": SEGMENTS[:, :5],
    "dtype list": [[0]], "decreases": SEGMENTS.flip(1),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_segments_that_are_none_are_refused(message, no_type_checks):
    layer, x, segments = create(causal=True), tokens(2, 9), WRONG[message]
    encoder = zoo.EncoderLayer(layer, feed_forward=8).double()
    for call in (layer, layer.prefill, encoder, encoder.prefill):
        with pytest.raises(zoo.UserError, match=message):
            call(x, segments=segments)


def test_a_sequence_longer_than_max_len_and_another_context_are_refused_and_no_row_is_not():
    layer, x = create(), tokens(2, 18)
    assert layer(x[:0, :9], segments=SEGMENTS[:0]).tokens.shape == (0, 9, 16)
    assert layer(x, segments=SEGMENTS.repeat_interleave(2, 1) + torch.arange(18) // 9).tokens.shape
    with pytest.raises(zoo.UserError, match="max_len=9"):
        layer(x, segments=torch.zeros(2, 18, dtype=torch.long))
    with pytest.raises(zoo.Unsupported, match="softmax got segments and a context"):
        layer(x, tokens(2, 18), segments=torch.arange(36).view(2, 18))


def test_padded_tokens_may_have_any_number():
    layer, x, mask = create("linear", causal=True), tokens(2, 9), torch.ones(2, 9).bool()
    mask[0, [0, 4, 8]] = False
    expected = layer(x, mask=mask, segments=SEGMENTS).tokens[mask]
    _, state = layer.prefill(x, mask, segments=SEGMENTS)
    for number in (-1, 99):
        segments = SEGMENTS.where(mask, number).int()
        torch.testing.assert_close(layer(x, mask=mask, segments=segments).tokens[mask], expected)
        torch.testing.assert_close(layer.prefill(x, mask, segments=segments)[1], state)


@pytest.mark.parametrize("kind", [zoo.EncoderLayer, PostNormLayer])
def test_encoder_layers_pass_segments_on(kind):
    layer, x = kind(create("delta", causal=True), feed_forward=8, recompute="layer"), tokens(2, 9)
    layer, every = layer.double(), torch.empty_like(x)
    for row, at in SEQUENCES:
        every[row, at] = layer(x[row, None, at]).tokens[0]
    for packed in (
        layer(x, segments=SEGMENTS).tokens,
        layer.prefill(x, segments=SEGMENTS)[0],
        zoo.TokensOnly(layer)(x, segments=SEGMENTS),
    ):
        torch.testing.assert_close(packed, every)


def test_functions_of_queries_keys_and_values_take_segments():
    q, k, v = tokens(3, 2, 9).unflatten(-1, (4, 4)).transpose(2, 3)
    for name, causal in (("linear", True), ("softmax", False)):
        function = getattr(zoo.functional, name)
        out = function(q, k, v, is_causal=causal, segments=SEGMENTS, max_len=9)
        for row, at in SEQUENCES:
            one = (part[row, None, :, at] for part in (q, k, v))
            torch.testing.assert_close(out[row, :, at], function(*one, is_causal=causal)[0])
    with pytest.raises(zoo.Unsupported, match="9 queries and 5 keys"):
        zoo.functional.softmax(q, k[:, :, :5], v[:, :, :5], segments=SEGMENTS)


@pytest.mark.parametrize("name", ["softmax", "delta"])
def test_a_state_is_continued_by_rows_of_one_sequence_or_of_several(name):
    layer, x = create(name, causal=True), tokens(2, 9)
    _, state = layer.prefill(x)
    one, several = torch.zeros(2, 4, dtype=torch.long), torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    tail = tokens(2, 4) * 2
    expected = layer.prefill(tail, None, state)
    torch.testing.assert_close(layer.prefill(tail, None, state, one), expected)
    _, (*_, last) = layer.prefill(tail, None, state, several)
    assert len(last) == 2
    if name == "softmax":  # caches of both would differ in length
        with pytest.raises(zoo.Unsupported, match="a state that grows"):
            layer.prefill(tail, None, state, torch.cat([one[:1], several[1:]]))
    else:
        both = layer.prefill(tail, None, state, torch.cat([one[:1], several[1:]]))
        torch.testing.assert_close(both[0][0], expected[0][0])
        torch.testing.assert_close([part[0] for part in both[1]], [p[0] for p in expected[1]])
