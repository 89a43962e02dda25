"""The transformer round a variant: embedding, pre-norm layers, and a head.

The model of the published LRA runs (Chen et al., 2023; Xiong et al., 2021), but for the mean that
its head reads, which here runs over real tokens only. Where a task asks at tokens, the head reads
those.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from harness.records.spec import RunSpec
from tasks import Task
from tasks.contract import Batch
from zoo.composition import Composition
from zoo.contract import Attention, Size, attended_by


class Layer(nn.Module):
    """Pre-norm attention and feed-forward block, each with a residual connection."""

    def __init__(self, attention: Attention, feed_forward: int, dropout: float) -> None:
        """Wrap `attention`; `feed_forward` is the hidden width behind it."""
        super().__init__()
        dim = attention.size.dim
        self.attention = attention
        self.attention_norm = nn.LayerNorm(dim)
        self.feed_forward_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, feed_forward),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(feed_forward, dim),
            nn.Dropout(dropout),
        )

    def forward(
        self, x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None
    ) -> tuple[Float[Tensor, "b n d"], Mapping[str, Tensor]]:
        """Return new tokens, and the attention's extra losses."""
        normed = self.attention_norm(x)
        attended = attended_by(self.attention, self.attention(normed, normed, mask))
        x = x + self.dropout(attended.tokens)
        return x + self.feed_forward(self.feed_forward_norm(x)), attended.losses


class Classifier(nn.Module):
    """Encodes every document of an example with one encoder, and classifies the example."""

    def __init__(
        self,
        layers: Sequence[Attention],
        *,
        vocabulary: int,
        classes: int,
        sequences: int,
        feed_forward: int,
        head: int,
        dropout: float,
    ) -> None:
        """Build the model round `layers`, which share one `Size`.

        Args:
            layers: the attention of each layer, first to last.
            vocabulary: number of token values.
            classes: number of classes.
            sequences: t, documents an example; two are compared as [u; v; u*v; u-v].
            feed_forward: hidden width of the feed-forward blocks.
            head: hidden width of the classifier.
            dropout: behind the embedding and every block.
        """
        super().__init__()
        size = layers[0].size
        self.token = nn.Embedding(vocabulary, size.dim)
        # Where queries and keys are turned by their positions, tokens carry none.
        self.position = None if size.rotary else nn.Embedding(size.max_len, size.dim)
        for table in filter(None, (self.token, self.position)):
            nn.init.normal_(table.weight, std=0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(one, feed_forward, dropout) for one in layers)
        self.norm = nn.LayerNorm(size.dim)
        width = size.dim * (1 if sequences == 1 else 4)
        self.head = nn.Sequential(nn.Linear(width, head), nn.ReLU(), nn.Linear(head, classes))

    def forward(self, batch: Batch) -> tuple[Float[Tensor, "b *a classes"], dict[str, Tensor]]:
        """Return the scores of each answer, and extra losses, each a mean over its layers."""
        mask = None if batch.mask is None else batch.mask.flatten(0, 1)
        tokens, losses = self.encode(batch.tokens.flatten(0, 1), mask)
        if batch.target_positions is not None:
            return self.head(
                tokens.take_along_dim(batch.target_positions[..., None], dim=1)
            ), losses
        pooled = mean_over_real(tokens, mask).unflatten(0, batch.tokens.shape[:2])
        return self.head(compare(pooled)), losses

    def encode(
        self, tokens: Int[Tensor, "b n"], mask: Bool[Tensor, "b n"] | None
    ) -> tuple[Float[Tensor, "b n d"], dict[str, Tensor]]:
        """Return the last layer's normed tokens, and the extra losses."""
        x = self.token(tokens)
        if self.position is not None:
            x = x + self.position.weight[: tokens.shape[1]]
        x = self.dropout(x)
        emitted: dict[str, list[Tensor]] = {}
        for layer in self.layers:
            x, losses = layer(x, mask)
            for name, loss in losses.items():
                emitted.setdefault(name, []).append(loss)
        return self.norm(x), {n: torch.stack(terms).mean() for n, terms in emitted.items()}


def mean_over_real(
    tokens: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None
) -> Float[Tensor, "b d"]:
    """Mean over the real tokens of each sample; zero where there are none."""
    if mask is None:
        return tokens.mean(1)
    # A select, not a product: whatever stands at a padded position must not reach the sum.
    total = tokens.masked_fill(~mask[..., None], 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp_min(1)


def compare(pooled: Float[Tensor, "b t d"]) -> Float[Tensor, "b features"]:
    """What the classifier sees: u alone, or [u; v; u*v; u-v] of two documents."""
    if pooled.shape[1] == 1:
        return pooled[:, 0]
    u, v = pooled.unbind(1)
    return torch.cat([u, v, u * v, u - v], dim=-1)


def build(spec: RunSpec, task: Task) -> Classifier:
    """The model that `spec` describes, initialised from the default generator.

    Raises:
        UserError: a variant or an option is unknown or cannot be had in this size.
    """
    model = spec.model
    size = Size(
        dim=model.dim,
        heads=model.heads,
        max_len=task.max_len,
        causal=task.causal,
        dropout=model.attention_dropout,
        rotary=model.positions == "rotary",
    )
    return Classifier(
        Composition.parse(spec.attention).build(size, model.depth, spec.options),
        vocabulary=task.vocabulary,
        classes=task.classes,
        sequences=task.sequences,
        feed_forward=model.feed_forward,
        head=model.head,
        dropout=model.dropout,
    )
