"""The model of a run, chosen by the inputs of its task: embedding, layers and a head.

`Classifier` is the model of the published LRA runs (Chen et al., 2023; Xiong et al., 2021), with
one difference: the mean over tokens, which the head reads, excludes padding.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from harness.environment import memory_of
from harness.records import spec as specs
from harness.records.spec import Encoder, Model, RunSpec, SequenceModel
from tasks.contract import Batch, Task
from tasks.control.windows import RETURN, STATES, TIME
from tasks.data.images import ImageTask, require_timm
from zoo.composition import build
from zoo.contract import Attention, Size
from zoo.encoder import EncoderLayer
from zoo.post_norm import PostNormLayer
from zoo.registry import UserError, Value, require_memory

BYTES_PER_PARAMETER = 16  # fp32: weight, gradient, and the two moments of the optimiser

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
        width = size.dim * (1 if sequences == 1 else 4)
        if flat:
            self.head = FlattenedHead(size.dim, size.max_len, classes, model.dropout)
        elif model.pooling == "decode":
            self.head = AnswerDecoder(size.dim, size.max_len, classes)
        elif model.head:
            hidden = nn.Linear(width, model.head)
            self.head = nn.Sequential(hidden, nn.ReLU(), nn.Linear(model.head, classes))
        else:
            self.head = nn.Linear(width, classes)

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
        if pooled.shape[1] == 1:
            return self.head(pooled[:, 0]), losses
        u, v = pooled.unbind(1)
        return self.head(torch.cat([u, v, u * v, u - v], dim=-1)), losses

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


def mean_losses(layers: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    by_name = defaultdict[str, list[Tensor]](list)
    for name, loss in chain.from_iterable(losses.items() for losses in layers):
        by_name[name].append(loss)
    return {name: torch.stack(terms).mean() for name, terms in by_name.items()}


class Stack(NamedTuple):
    model: Model
    layers: tuple[str, ...]
    options: Mapping[str, Mapping[str, Value]]


def build_model(spec: RunSpec | Stack, task: Task) -> nn.Module:
    model = spec.model
    size = Size(
        dim=model.dim, heads=model.heads, max_len=task.max_len, causal=task.causal,
        dropout=model.attention_dropout, rotary=getattr(model, "positions", "") == "rotary",
        short_conv=getattr(model, "short_conv", 0),
    )  # fmt: skip
    return BUILDERS[model.kind](build(spec.layers, size, spec.options), model, task)


def trainable(model: nn.Module) -> int:
    return sum(part.numel() for part in model.parameters() if part.requires_grad)


def attentions(model: nn.Module) -> list[Attention]:
    found = {name: part for name, part in model.named_modules() if isinstance(part, Attention)}
    # Without parts of attention layers.
    inner = tuple(f"{name}." for name in found)
    return [part for name, part in found.items() if not name.startswith(inner)]


class VisionModel(nn.Module):
    """A vision transformer of timm whose blocks hold our attention layers.

    DeiT (Touvron et al., 2021, arXiv 2012.12877) without distillation: patches and a class token
    with learned positions, pre-norm blocks, and a linear classifier of the class token. With depth
    12, width 384, 6 heads and feed-forward width 1,536 it is timm's `deit_small_patch16_224`.
    """

    def __init__(self, transformer: Any, *, dropout: float) -> None:
        super().__init__()
        self.transformer = transformer
        self.dropout = nn.Dropout(dropout)
        self.undecayed = {f"transformer.{name}" for name in transformer.no_weight_decay()}

    @property
    def layers(self) -> nn.Module:
        return self.transformer.blocks

    def forward(self, batch: Batch) -> tuple[Float[Tensor, "b classes"], dict[str, Tensor]]:
        whole, layer_losses = self.transformer, []
        x = whole.norm_pre(whole._pos_embed(whole.patch_embed(batch.tokens)))
        for block in whole.blocks:
            attended, losses = block.attn(block.norm1(x))
            layer_losses.append(losses)
            x = x + block.drop_path1(self.dropout(attended))
            x = x + block.drop_path2(block.mlp(block.norm2(x)))
        return whole.forward_head(whole.norm(x)), mean_losses(layer_losses)


def build_vision(
    layers: Sequence[Attention], model: specs.VisionTransformer, task: Task
) -> VisionModel:
    if not isinstance(task, ImageTask):
        raise UserError(f"{task.key} is of images, but has no size and patch; define both")
    require_timm()
    from timm.models.vision_transformer import VisionTransformer

    dropout = dict.fromkeys(("drop_rate", "pos_drop_rate", "proj_drop_rate"), model.dropout)
    transformer: Any = VisionTransformer(
        img_size=task.size, patch_size=task.patch, num_classes=task.classes, embed_dim=model.dim,
        depth=model.depth, num_heads=model.heads, drop_path_rate=model.drop_path, **dropout,
        # timm rounds the product with the width down.
        mlp_ratio=(model.feed_forward + 0.5) / model.dim,
    )  # fmt: skip
    for block, layer in zip(transformer.blocks, layers, strict=True):
        block.attn = layer
    return VisionModel(transformer, dropout=model.dropout)


class DecisionTransformer(nn.Module):
    """Predicts the action of each step from the steps before it, its return-to-go and its state.

    Chen et al., "Decision Transformer: Reinforcement Learning via Sequence Modeling", 2021, arXiv
    2106.01345. Each step t of a window is three tokens, its return-to-go, state and action:

        x_3t = LN(W_r r_t + u_t),  x_3t+1 = LN(W_s s_t + u_t),  x_3t+2 = LN(W_a a_t + u_t)
        a'_t = tanh(W y_3t+1 + b)

    where u_t is the embedding of the time step and y is the output of causal layers and a final
    norm. Layers and initialisation are those of the other models here; the published model has
    ReLU, no dropout after it, and weights of standard deviation 0.02.
    """

    def __init__(
        self, layers: Sequence[Attention], model: specs.DecisionTransformer, *,
        state_dim: int, action_dim: int, max_steps: int,
    ) -> None:  # fmt: skip
        super().__init__()
        dim = layers[0].size.dim
        self.time = nn.Embedding(max_steps, dim)
        nn.init.normal_(self.time.weight, std=0.02)
        self.embed_return = nn.Linear(1, dim)
        self.embed_state = nn.Linear(state_dim, dim)
        self.embed_action = nn.Linear(action_dim, dim)
        self.embedding_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(model.dropout)
        self.layers = Layers(layers, model)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Sequential(nn.Linear(dim, action_dim), nn.Tanh())

    def forward(self, batch: Batch) -> tuple[Float[Tensor, "b k a"], dict[str, Tensor]]:
        # `batch.tokens`: windows (b, 1, k, f), with the channels of `tasks.control.windows`.
        steps, actions = batch.tokens[:, 0], self.embed_action.in_features
        embedded = [
            self.embed_return(steps[..., RETURN:STATES]),
            self.embed_state(steps[..., STATES:-actions]),
            self.embed_action(steps[..., -actions:]),
        ]
        x = torch.stack(embedded, dim=2) + self.time(steps[..., TIME].long())[:, :, None]
        x = self.dropout(self.embedding_norm(x.flatten(1, 2)))
        mask = None if batch.mask is None else batch.mask[:, 0].repeat_interleave(3, dim=1)
        x, losses = self.layers(x, mask)
        return self.head(self.norm(x[:, 1::3])), losses


# By `kind` of `harness.records.spec`.
BUILDERS: Mapping[str, Callable[[Sequence[Attention], Any, Task], nn.Module]] = {
    "encoder": lambda layers, model, task: Classifier(
        layers, model, vocabulary=task.vocabulary, channels=task.channels, classes=task.classes,
        sequences=task.sequences,
    ),
    "vision": build_vision,
    "decision": lambda layers, model, task: DecisionTransformer(
        layers, model, state_dim=task.channels - STATES - task.classes, action_dim=task.classes,
        max_steps=task.vocabulary,
    ),
}  # fmt: skip


def require_fit(spec: RunSpec) -> None:
    model = spec.model
    count = 2 * model.depth * model.dim * model.feed_forward
    require_memory(
        BYTES_PER_PARAMETER * count,
        f"training {spec.attention} on {spec.task.key}, at least {count:.3g} parameters,",
        "lower model.depth, model.dim or model.feed_forward",
        memory_of(spec.device),
    )
