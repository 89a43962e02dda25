"""The model of a run, chosen by the inputs of its task."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harness.classifier import Classifier, Layers, Stack, mean_losses, size_of
from harness.environment import memory_of
from harness.records import models as specs
from harness.records.spec import RunSpec
from tasks.contract import Batch, Task
from tasks.control.windows import RETURN, STATES, TIME
from tasks.data.images import ImageTask, require_timm
from zoo.composition import build
from zoo.contract import Attention
from zoo.registry import UserError, require_memory

BYTES_PER_PARAMETER = 16  # fp32: weight, gradient, and the two moments of the optimiser


def build_model(spec: RunSpec | Stack, task: Task) -> nn.Module:
    layers = build(spec.layers, size_of(spec.model, task), spec.options)
    return BUILDERS[spec.model.kind](layers, spec.model, task)


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
        # `batch.tokens` are windows of k steps, (b, 1, k, f), with the f channels of
        # `tasks.control.windows`.
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


# By `kind` of `harness.records.models`.
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
