"""The spectra of attention matrices: how many directions attention uses, layer by layer.

The cumulative explained variance of an attention matrix with the singular values s_1 >= s_2 >= ...
is sum_(i <= r) s_i^2 / sum_i s_i^2, the share of its squared Frobenius norm in its best
approximation of rank r. Its effective rank is exp(H), H the entropy of the singular values as
shares of their sum (Roy and Vetterli, 2007, EUSIPCO).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harness import weights
from harness.layer_inputs import Inputs, attentions, evenly_spaced, recorded
from harness.model import build_model
from harness.plan import Plan
from harness.provenance import environment_of
from harness.records.spectrum import LayerSpectrum, Moment, SpectrumRecord
from zoo.contract import Attention, Unsupported

EVERY = 32
"""Ranks up to which a spectrum has every one; then they are about a tenth apart."""


class Values(NamedTuple):
    """Explained variance and effective rank of one sample and one layer, means over the heads."""

    explained: Float[Tensor, " r"]
    effective_rank: Float[Tensor, ""]


def spectra(
    plan: Plan,
    files: Mapping[int, Path],
    samples: int,
    announce: Callable[[str], None] = lambda line: None,
) -> SpectrumRecord:
    """The spectra of a run at the weights of `files`, by step, on examples of dev.

    In fp32, in evaluation mode. The rows and columns of padded tokens are left out. `announce` is
    called with one line before each step.

    Raises:
        UserError: a file is damaged, or is of another model.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    model = build_model(plan.spec, plan.task).eval()
    ranks = ranks_up_to(plan.task.max_len)
    moments = []
    for step, path in files.items():
        announce(f"step {step}")
        weights.load(path, model)
        moments.append(Moment(step=step, layers=_layers(model, plan, samples, ranks)))
    return SpectrumRecord(
        spec=plan.spec, samples=samples, ranks=tuple(ranks), moments=tuple(moments),
        started=started, environment=environment_of(plan),
    )  # fmt: skip


def ranks_up_to(limit: int) -> list[int]:
    """The ranks of a spectrum of sequences of at most `limit` tokens, `limit` included."""
    ranks = [*range(1, min(EVERY, limit) + 1)]
    while ranks[-1] < limit:
        ranks.append(min(limit, ranks[-1] + ranks[-1] // 10))
    return ranks


def explained_variance(
    matrix: Float[Tensor, "*b n m"], ranks: Sequence[int]
) -> tuple[Float[Tensor, "*b r"], Float[Tensor, "*b"]]:
    """Cumulative explained variance at each rank, and the effective rank, of each matrix.

    A rank above n or m has the value 1, and so has every rank of a matrix of zeros, whose effective
    rank is 1.
    """
    values = torch.linalg.svdvals(matrix)
    squares = values.square()
    # A matrix of zeros is explained by any direction.
    total = squares.sum(-1, keepdim=True)
    shares = torch.where(total > 0, squares.cumsum(-1) / total, 1.0)
    index = torch.tensor(ranks, device=matrix.device).clamp_max(values.shape[-1]) - 1
    sums = values.sum(-1, keepdim=True)
    weights = torch.where(sums > 0, values / sums, 0.0)
    return shares[..., index].clamp_max(1), torch.special.entr(weights).sum(-1).exp()


def _layers(
    model: nn.Module, plan: Plan, samples: int, ranks: Sequence[int]
) -> tuple[LayerSpectrum, ...]:
    """The spectra of every layer of `model`, as its weights are now."""
    dev = plan.data.splits["dev"]
    values: dict[int, list[Values]] = {}
    reasons: dict[int, str] = {}
    layers = attentions(model)
    for example in evenly_spaced(dev, samples):
        with torch.inference_mode(), recorded(model) as calls:
            model(dev.gather(example[None]))
            for number, (attention, inputs) in enumerate(zip(layers, calls, strict=True)):
                try:
                    values.setdefault(number, []).append(_values(attention, inputs, ranks))
                except Unsupported as error:
                    reasons[number] = str(error)
    return tuple(
        LayerSpectrum(variant=attention.name(), reason=reasons[number])
        if number in reasons
        else _summary(attention.name(), values[number])
        for number, attention in enumerate(layers)
    )


def _values(attention: Attention, inputs: Inputs, ranks: Sequence[int]) -> Values:
    """The spectrum of an example: the mean over its sequences and heads."""
    x, mask = inputs
    matrix = attention.matrix(x, x, mask)
    parts = []
    for number, of_sequence in enumerate(matrix):
        real = slice(None) if mask is None else mask[number]
        parts.append(explained_variance(of_sequence[:, real][:, :, real], ranks))
    explained, effective = (
        torch.stack(part).flatten(0, 1).mean(0) for part in zip(*parts, strict=True)
    )
    return Values(explained, effective)


def _summary(variant: str, values: Sequence[Values]) -> LayerSpectrum:
    explained = torch.stack([one.explained for one in values])
    effective = torch.stack([one.effective_rank for one in values])
    return LayerSpectrum(
        variant=variant,
        explained=tuple(explained.mean(0).clamp_max(1).tolist()),
        explained_deviation=tuple(explained.std(0, correction=0).tolist()),
        effective_rank=max(1.0, effective.mean().item()),
        effective_rank_deviation=effective.std(correction=0).item(),
    )
