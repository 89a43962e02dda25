"""Packed rows: several sequences in one row of a batch, each computed as if it were alone.

    layer(x, segments=segments)

`segments`, (b, n), numbers the sequence of each token. The numbers do not decrease in a row: a
sequence begins where the number changes. It becomes a sample of its own, so that attention,
windows, convolutions, positions and states begin anew in every variant that treats padding right.
Samples that are computed together are longer than half of the longest, so less than half of what
is computed is padding; docs/decisions/masks.md compares that with masks.

Axis letters beyond the contract's: `s` sequences, `l` tokens of the longest.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

Segments = Int[Tensor, "b n"]
"""The number of the sequence of each token; it does not decrease among the real tokens of a row."""

Tokens = Float[Tensor, "b *heads n e"]


def segments_of(cu_seqlens: Int[Tensor, " ends"]) -> Int[Tensor, "1 n"]:
    """The segments of one row whose sequences begin and end at 0, ..., n, as in FlashAttention."""
    numbers = torch.arange(len(cu_seqlens) - 1, device=cu_seqlens.device)
    return numbers.repeat_interleave(cu_seqlens.diff())[None]


def positions_in(segments: Segments) -> Segments:
    """The position of each token in its sequence, such as the index of a learned embedding."""
    index = torch.arange(segments.shape[1], device=segments.device)
    return index - torch.where(first_tokens(segments), index, 0).cummax(1).values


def filled(segments: Segments, mask: Bool[Tensor, "b n"] | None) -> Segments:
    # A padded token belongs to the sequence before it, or to the first.
    if mask is not None:
        least = torch.where(mask, segments, torch.iinfo(segments.dtype).max).amin(1, keepdim=True)
        segments = torch.where(mask, segments, least)
    return segments.cummax(1).values


def first_tokens(segments: Segments) -> Bool[Tensor, "b n"]:
    return F.pad(segments.diff(dim=1) != 0, (1, 0), value=True)


class Part(NamedTuple):
    """Sequences that are computed together."""

    # Of their tokens, among all of the batch; behind the end of a sequence, of its first.
    place: Int[Tensor, "s l"]
    mask: Bool[Tensor, "s l"] | None

    def of(self, x: Tokens) -> Float[Tensor, "s *heads l e"]:
        rows = x.movedim(-2, 1).flatten(0, 1).index_select(0, self.place.flatten())
        return rows.unflatten(0, self.place.shape).movedim(1, -2)


class Packed:
    """The sequences of a batch, the longest first, in parts, or all `together` in one.

    `place` is of each token of the batch, among all of the parts; `sample` of the last sequence of
    each row, among the samples of all parts.
    """

    def __init__(
        self, segments: Segments, mask: Bool[Tensor, "b n"] | None, *, together: bool = False
    ) -> None:
        first = first_tokens(filled(segments, mask))
        start = first.flatten().nonzero()[:, 0]
        length = F.pad(start, (0, 1), value=segments.numel()).diff()
        longest = list[int]()
        for size in sorted({*length.tolist()} or {1}, reverse=True):
            if not longest or (2 * size <= longest[-1] and not together):
                longest.append(size)
        self.parts, total, samples = list[Part](), 0, 0
        place, sample = torch.empty_like(segments.flatten()).long(), torch.empty_like(start)
        for size, below in zip(longest, [*longest[1:], 0], strict=True):
            chosen = ((length <= size) & (length > below)).nonzero()[:, 0]
            offset = torch.arange(size, device=start.device)
            exists, index = offset < length[chosen, None], start[chosen, None] + offset
            place[index[exists]] = total + exists.flatten().nonzero()[:, 0]
            sample[chosen] = samples + torch.arange(len(chosen), device=start.device)
            index = index.where(exists, start[chosen, None])
            real = exists if mask is None else exists & mask.flatten()[index]
            self.parts.append(Part(index, None if bool(real.all()) else real))
            total, samples = total + index.numel(), samples + len(chosen)
        self.place = place.view_as(segments)
        self.sample = sample[first.sum(1).cumsum(0) - 1]

    def join(self, outputs: Sequence[Tensor]) -> Tokens:
        # Of every part, (s, *heads, l, e).
        tokens = torch.cat([output.movedim(-2, 1).flatten(0, 1) for output in outputs])
        batch = tokens.index_select(0, self.place.flatten()).unflatten(0, self.place.shape)
        return batch.movedim(1, -2)


def prefill_packed(
    layer: Any, x: Tokens, mask: Bool[Tensor, "b n"] | None, segments: Segments,
    state: tuple[Tensor, ...] | None,
) -> tuple[Tokens, tuple[Tensor, ...]]:  # fmt: skip
    # See `Attention.prefill`; a state that grows needs one sequence a row, or several in each.
    if state is None:
        rows = Packed(segments, mask, together=not layer.traits.recurrent)
        outputs, states = zip(*(layer.prefill(p.of(x), p.mask) for p in rows.parts), strict=True)
        after = (torch.cat(parts)[rows.sample] for parts in zip(*states, strict=True))
        return rows.join(outputs), tuple(after)
    segments = filled(segments, mask)
    first = segments == segments[:, :1]
    longest, real = int(first.sum(1).max()), first if mask is None else first & mask
    tokens, ends = layer.prefill(x[:, :longest], real[:, :longest], state)
    if bool(first.all()):
        return tokens, ends
    others, after = prefill_packed(layer, x, mask, segments, None)
    if bool((single := first.all(1)).any()):
        after = layer.where_real(single, ends, after)
    tokens = F.pad(tokens, (0, 0, 0, x.shape[1] - longest))
    return torch.where(first[..., None], tokens, others), after
