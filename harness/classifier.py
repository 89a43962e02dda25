"""The transformer encoder around a variant: embedding, layers, and a classifier head.

The model of the published LRA runs (Chen et al., 2023; Xiong et al., 2021), with one difference:
the mean over tokens, which the head reads, excludes padding. Other heads are options of `Encoder`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from harness.records.models import Encoder, Model, SequenceModel, Transformer
from tasks import Task
from tasks.contract import Batch
from zoo.contract import Attention, Size
from zoo.encoder import EncoderLayer
from zoo.post_norm import PostNormLayer
from zoo.registry import UserError, Value

# By `SequenceModel.norm`.
LAYERS: Mapping[str, Callable[..., EncoderLayer]] = {
    "pre": EncoderLayer,
    "post": PostNormLayer,
    "batch": partial(PostNormLayer, norm="batch"),
}


class Layers(nn.ModuleList):
    def __init__(self, attentions: Iterable[Attention], model: SequenceModel) -> None:
        fields = {name: getattr(model, name) for name in ("feed_forward", "dropout", "recompute")}
        super().__init__(LAYERS[model.norm](attention, **fields) for attention in attentions)

    def forward(
        self, x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None
    ) -> tuple[Float[Tensor, "b n d"], dict[str, Tensor]]:
        layer_losses = []
        for layer in self:
            x, losses = layer(x, mask)
            layer_losses.append(losses)
        return x, mean_losses(layer_losses)


class Classifier(nn.Module):
    """Encodes the sequences of an example with one encoder, and classifies the example.

    Tokens are embedded by a table, the time points of a signal by a linear layer.
    """

    def __init__(
        self, layers: Sequence[Attention], model: Encoder, *, vocabulary: int, channels: int = 0,
        classes: int, sequences: int,
    ) -> None:  # fmt: skip
        # An example has 1 or 2 `sequences` of tokens, or of a signal with `channels`.
        super().__init__()
        size, flat = layers[0].size, model.pooling == "flatten"
        if flat and sequences != 1:
            raise UserError("model.pooling=flatten reads one sequence of an example; use mean")
        self.token = (
            SignalEmbedding(channels, size.dim) if channels else nn.Embedding(vocabulary, size.dim)
        )
        # Rotary positions are inside the attention.
        learned = model.positions == "learned" and not size.rotary
        self.position = nn.Embedding(size.max_len, size.dim) if learned else None
        for table in (self.token, self.position):
            if isinstance(table, nn.Embedding):
                nn.init.normal_(table.weight, std=model.embedding_std)
        self.dropout = nn.Dropout(model.dropout)
        self.layers = Layers(layers, model)
        self.norm = nn.LayerNorm(size.dim)
        if flat:
            self.head = FlattenedHead(size.dim, size.max_len, classes, model.dropout)
        elif model.pooling == "decode":
            self.head = AnswerDecoder(size.dim, size.max_len, classes)
        else:
            self.head = _pooled(size.dim * (1 if sequences == 1 else 4), model.head, classes)

    def forward(self, batch: Batch) -> tuple[Float[Tensor, "b *a classes"], dict[str, Tensor]]:
        mask = None if batch.mask is None else batch.mask.flatten(0, 1)
        tokens, losses = self.encode(batch.tokens.flatten(0, 1), mask)
        positions = batch.target_positions
        if isinstance(self.head, FlattenedHead):
            if positions is not None:
                message = "model.pooling=flatten has no outputs at target positions; use mean"
                raise UserError(message)
            return self.head(tokens, mask), losses
        if positions is not None:
            return self.head(tokens.take_along_dim(positions[..., None], dim=1)), losses
        if isinstance(self.head, AnswerDecoder):
            raise UserError("model.pooling=decode needs outputs at target positions; use mean")
        pooled = masked_mean(tokens, mask).unflatten(0, batch.tokens.shape[:2])
        return self.head(pair_features(pooled)), losses

    def encode(
        self,
        tokens: Int[Tensor, "b n"] | Float[Tensor, "b n f"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> tuple[Float[Tensor, "b n d"], dict[str, Tensor]]:
        x = self.token(tokens)
        if self.position is not None:
            x = x + self.position.weight[: tokens.shape[1]]
        x, losses = self.layers(self.dropout(x), mask)
        return self.norm(x), losses


def _pooled(width: int, hidden: int, classes: int) -> nn.Module:
    if not hidden:
        return nn.Linear(width, classes)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))


class SignalEmbedding(nn.Linear):
    """Embeds the channels of each time point: sqrt(d) (W x + b).

    The factor is from Vaswani et al. (2017, arXiv 1706.03762), section 3.4, for embeddings, and
    from the published model of time series (Zerveas et al., 2021, arXiv 2010.02803).
    """

    def forward(self, input: Float[Tensor, "b n f"]) -> Float[Tensor, "b n d"]:
        return super().forward(input) * math.sqrt(self.out_features)


class FlattenedHead(nn.Linear):
    """One linear layer on the concatenated tokens, GELU and dropout before it, padding as zeros.

    The head of the published models of time series (Zerveas et al., 2021, arXiv 2010.02803; Chen et
    al., 2023, arXiv 2305.19798).
    """

    def __init__(self, dim: int, max_len: int, classes: int, dropout: float) -> None:
        super().__init__(dim * max_len, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, input: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b classes"]:
        # n is below `max_len` in a batch of short sequences.
        tokens = self.dropout(F.gelu(input))
        if mask is not None:
            tokens = torch.where(mask[..., None], tokens, 0.0)
        flat = tokens.flatten(1)
        return super().forward(F.pad(flat, (0, self.in_features - flat.shape[1])))


class AnswerDecoder(nn.Sequential):
    """Two hidden layers on the vector at the position of answer i plus a fixed vector of i.

    With one position for all answers, one vector holds them: the decoder of the task `compression`
    of MAD (Poli et al., 2024, arXiv 2403.17844). The vector of i has the sines and cosines of i /
    10000^(2 j / d), j = 0, ..., d / 2 (Vaswani et al., 2017, arXiv 1706.03762, section 3.5).
    """

    numbers: Float[Tensor, "n d"]

    def __init__(self, dim: int, max_len: int, classes: int) -> None:
        hidden = (part for _ in range(2) for part in
                  (nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()))  # fmt: skip
        super().__init__(*hidden, nn.LayerNorm(dim), nn.Linear(dim, classes))
        angles = torch.arange(max_len)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
        numbers = torch.cat([angles.sin(), angles.cos()], dim=1)[:, :dim]
        self.register_buffer("numbers", numbers, persistent=False)

    def forward(self, input: Float[Tensor, "b a d"]) -> Float[Tensor, "b a classes"]:
        return super().forward(input + self.numbers[: input.shape[1]])


def masked_mean(
    tokens: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None
) -> Float[Tensor, "b d"]:
    if mask is None:
        return tokens.mean(1)
    # Not a product: a NaN at a padded position must not reach the sum.
    total = torch.where(mask[..., None], tokens, 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp_min(1)


def pair_features(pooled: Float[Tensor, "b t d"]) -> Float[Tensor, "b features"]:
    if pooled.shape[1] == 1:
        return pooled[:, 0]
    u, v = pooled.unbind(1)
    return torch.cat([u, v, u * v, u - v], dim=-1)


def mean_losses(layers: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    by_name = defaultdict[str, list[Tensor]](list)
    for name, loss in chain.from_iterable(losses.items() for losses in layers):
        by_name[name].append(loss)
    return {name: torch.stack(terms).mean() for name, terms in by_name.items()}


def size_of(model: Transformer, task: Task) -> Size:
    return Size(
        dim=model.dim, heads=model.heads, max_len=task.max_len, causal=task.causal,
        dropout=model.attention_dropout, rotary=getattr(model, "positions", "") == "rotary",
        short_conv=getattr(model, "short_conv", 0),
    )  # fmt: skip


class Stack(NamedTuple):
    model: Model
    layers: tuple[str, ...]
    options: Mapping[str, Mapping[str, Value]]
