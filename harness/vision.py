"""The vision transformer around a variant: timm's, with the attention of each block replaced.

DeiT (Touvron et al., 2021, arXiv 2012.12877) without distillation: patches and a class token with
learned positions, pre-norm blocks, and a linear classifier of the class token. With depth 12, width
384, 6 heads and feed-forward width 1,536 it is timm's `deit_small_patch16_224`.
"""

from typing import Any, cast

from jaxtyping import Float
from torch import Tensor, nn

from harness.classifier import mean_losses, size_of
from harness.records import models as specs
from harness.records.spec import RunSpec
from tasks.contract import Batch, Task
from tasks.data.images import ImageTask
from tasks.data.transforms import require_timm
from zoo.composition import build
from zoo.kernels.dropout import Dropout
from zoo.registry import UserError


class VisionModel(nn.Module):
    """A vision transformer of timm whose blocks hold our attention layers."""

    def __init__(self, transformer: Any, *, dropout: float) -> None:
        """Wrap `transformer`; `dropout` is the probability after each attention."""
        super().__init__()
        self.transformer = transformer
        self.dropout = Dropout(dropout)
        self.undecayed = {f"transformer.{name}" for name in transformer.no_weight_decay()}

    def forward(self, batch: Batch) -> tuple[Float[Tensor, "b classes"], dict[str, Tensor]]:
        """Return the logits of each image, and the auxiliary losses."""
        whole, layer_losses = self.transformer, []
        x = whole.norm_pre(whole._pos_embed(whole.patch_embed(batch.tokens)))
        for block in whole.blocks:
            attended, losses = block.attn(block.norm1(x))
            layer_losses.append(losses)
            x = x + block.drop_path1(self.dropout(attended))
            x = x + block.drop_path2(block.mlp(block.norm2(x)))
        return whole.forward_head(whole.norm(x)), mean_losses(layer_losses)


def build_vision(spec: RunSpec, task: Task) -> VisionModel:
    """The model of a task of images; see `harness.model.build_model`.

    Everything but the attention layers is initialised as in DeiT.

    Raises:
        UserError: see `build_model`.
    """
    if not isinstance(task, ImageTask):
        raise UserError(f"{task.key} is of images, but has no size and patch; define both")
    require_timm()
    from timm.models.vision_transformer import VisionTransformer

    model = cast(specs.VisionTransformer, spec.model)
    layers = build(spec.layers, size_of(model, task), spec.options)
    transformer: Any = VisionTransformer(
        img_size=task.size,
        patch_size=task.patch,
        num_classes=task.classes,
        embed_dim=model.dim,
        depth=model.depth,
        num_heads=model.heads,
        # timm rounds the product with the width down.
        mlp_ratio=(model.feed_forward + 0.5) / model.dim,
        drop_rate=model.dropout,
        pos_drop_rate=model.dropout,
        proj_drop_rate=model.dropout,
        drop_path_rate=model.drop_path,
    )
    for block, layer in zip(transformer.blocks, layers, strict=True):
        block.attn = layer
    return VisionModel(transformer, dropout=model.dropout)
