"""Landmarks: means of segments of the real tokens, some of them empty in a short sample.

Axis letters beyond the contract's: `l` landmarks.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from zoo.contract import Mask, Queries


def segment_means(
    like: Queries, mask: Mask, landmarks: int
) -> tuple[Float[Tensor, "#b 1 l n"], Bool[Tensor, "#b 1 l"] | None]:
    # What tokens are multiplied by, at most one landmark for each, and which are not empty; None
    # for all of them. A graph for any length cannot have fewer landmarks than `landmarks`.
    n, exporting = like.shape[-2], torch.compiler.is_exporting()
    landmarks = landmarks if exporting else min(landmarks, n)
    real = torch.ones(1, n, dtype=torch.bool, device=like.device) if mask is None else mask
    rank, count = real.cumsum(1) - 1, real.sum(1, keepdim=True)
    segment = rank * landmarks // count.clamp_min(1)
    index = torch.arange(landmarks, device=like.device)
    member = (segment[:, None, :] == index[:, None]) & real[:, None, :]
    mean = member.to(like.dtype) / member.sum(-1, keepdim=True).clamp_min(1)
    return mean[:, None], member.any(-1)[:, None] if exporting or mask is not None else None


def isolate_empty(
    a: Float[Tensor, "b h l l"], filled: Bool[Tensor, "#b 1 l"]
) -> Float[Tensor, "b h l l"]:
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return torch.where(filled[..., None] & filled[..., None, :], a, identity)
