"""Attention layers of a model replaced by variants, with the projections that they have.

It replaces `nn.MultiheadAttention`, and classes like timm's `Attention`: with linear layers `qkv`
and `proj`, and `num_heads`. Attributes do not tell what a layer computes: each is
compared with softmax attention of its projections first, on random tokens, and refused where it
differs (docs/decisions/contract.md).
"""

import copy
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from zoo.contract import Attention, Mask, Unsupported
from zoo.functional import padding_of, projected_variant, require_dropout
from zoo.library import create
from zoo.projected import ProjectedAttention
from zoo.registry import UserError, Value, checked, in_one_line

TRIAL = 7  # Tokens of the two samples that layers are compared on
KNOWN = ("attn_drop", "out_proj", "proj", "proj_drop", "qkv")  # Parts that a layer may have


class Replaced(NamedTuple):
    """A layer that was replaced: its path in the model, its class, and the variant."""

    path: str
    before: str
    after: str


class Projections(NamedTuple):
    # Weights of q, k and v, (3d, d) and (3d), and of the output; heads; dropout of attention.

    weight: Any
    bias: Any
    out: Any
    heads: int
    dropout: float


@checked
def replace(
    model: nn.Module, variant: str, *, max_len: int, causal: bool = False, match: str = "*",
    **options: Value,
) -> list[Replaced]:  # fmt: skip
    """Replace the attention layers of a model in place: all that match, or none.

    Args:
        model: contains the layers.
        variant: a registered name, of a variant that has projections of queries, keys and values.
        max_len: the largest number of tokens of an input.
        causal: whether the model calls these layers with a causal mask.
        match: a pattern of paths in the model, such as `encoder.layers.*.self_attn`.
        **options: options of the variant.

    Returns:
        What was replaced, in the order of the model.

    Raises:
        Unsupported: the variant has no such projections or no such form, or a layer computes
            something else than softmax attention of its projections.
    """
    found = projected_variant(variant)
    every = model.named_modules(remove_duplicate=False)
    matching = {path: module for path, module in every if path and fnmatchcase(path, match)}
    old = {path: module for path, module in matching.items() if projections(module)}
    if not old:
        raise UserError("no nn.MultiheadAttention, and no Attention like timm's, matches "
                        f"{match!r}; give a pattern of paths in model.named_modules()")  # fmt: skip
    make = partial(create, variant, max_len=max_len, causal=causal, **options)
    # By module: a layer that is in several places of the model stays so.
    new = {module: substitute(path, module, found, make) for path, module in old.items()}
    for path, module in old.items():
        model.set_submodule(path, new[module])
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # it bypasses the layers
    return [Replaced(path, type(module).__name__, variant) for path, module in old.items()]


def projections(module: Any) -> Projections | None:
    if isinstance(module, nn.MultiheadAttention):
        weight, bias = module.in_proj_weight, module.in_proj_bias
        return Projections(weight, bias, module.out_proj, module.num_heads, module.dropout)
    qkv, proj = (getattr(module, name, None) for name in ("qkv", "proj"))
    if not (isinstance(qkv, nn.Linear) and isinstance(proj, nn.Linear)):
        return None
    dropout = getattr(getattr(module, "attn_drop", None), "p", 0.0)
    return Projections(qkv.weight, qkv.bias, proj, getattr(module, "num_heads", 1), dropout)


def substitute(
    path: str, module: nn.Module, variant: type[ProjectedAttention], make: Callable[..., Attention]
) -> "Called":
    kind = Multihead if isinstance(module, nn.MultiheadAttention) else Joint
    weight, _, out, heads, dropout = old = cast(Projections, projections(module))
    d = out.in_features
    if weight is None or weight.shape != (3 * d, d) or out.out_features != d:
        raise Unsupported(f"the projections of {path} are not of one width; leave it out by match")
    children = module.named_children()
    if extra := [n for n, p in children if n not in KNOWN and type(p) is not nn.Identity]:
        raise Unsupported(f"{path} has other parts ({', '.join(extra)}); leave it out by match")
    require_dropout(variant, f"{variant.name()}, in place of {path},", dropout)
    softmax = create("softmax", dim=d, heads=heads, max_len=TRIAL)
    try:
        error = largest_difference(module, kind(softmax, old, module), d)
    except Exception as problem:  # of an unknown class
        error = in_one_line(problem)
    if not (isinstance(error, float) and error < 1e-9):
        raise Unsupported(
            f"{path}, of class {type(module).__name__}, is no softmax attention of its "
            f"projections (difference in a trial: {error}); leave it out by match"
        )
    layer = make(dim=d, heads=heads, dropout=dropout)
    return kind(layer, old, module).train(module.training)


def largest_difference(module: nn.Module, new: "Called", d: int) -> float:
    # In evaluation mode, on random tokens in float64.
    x = torch.randn(2, TRIAL, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        called = [
            copy.deepcopy(part).cpu().double().eval()(*[x] * new.inputs) for part in (module, new)
        ]
    expected, actual = (output[0] if isinstance(output, tuple) else output for output in called)
    return float((expected - actual).abs().max())


class Called(nn.Module):
    """A layer of the zoo that has the projections and the call of the module that it replaces."""

    inputs = 1

    def __init__(self, layer: Attention, old: Projections, module: Any) -> None:
        # What is frozen stays so.
        super().__init__()
        self.layer, d = layer.to(old.weight), layer.size.dim
        self.proj_drop = getattr(module, "proj_drop", nn.Identity())
        self.batch_first, self.num_heads = getattr(module, "batch_first", True), old.heads
        joint, out = (old.weight, old.bias), (old.out.weight, old.out.bias)
        rows = {"query": (joint, slice(d)), "context": (joint, slice(d, None)), "out": (out, ...)}
        for linear, (sources, part) in rows.items():
            if sources[0][part].shape != getattr(layer, linear).weight.shape:
                raise UserError(
                    f"{layer.name()} with these options has a {linear} projection of another "
                    "width; set its option of that width to the width of a head"
                )
            for name, source in zip(("weight", "bias"), sources, strict=True):
                new = None
                if source is not None:
                    new = nn.Parameter(source.detach()[part].clone(), source.requires_grad)
                setattr(getattr(layer, linear), name, new)

    def mask_of(self, mask: Tensor | None, x: Tensor, context: Tensor) -> Mask:
        # True = attend; it must be as causal as the layer.
        (b, n, _), m, causal = x.shape, context.shape[1], self.layer.size.causal
        if mask is None and (not causal or n == 1):
            return None
        if mask is not None:
            real = padding_of(mask[(None,) * (4 - mask.ndim)], n, causal)
            if real is not None:
                return real.expand(b, m)
        form = "a causal mask" if causal else "no mask but padding"
        raise Unsupported(f"a layer that was replaced with causal={causal} expects {form}; give "
                          "the mask that it expects, or replace it with the other")  # fmt: skip

    def attended(self, x: Tensor, context: Tensor, mask: Mask) -> Tensor:
        # A padded key is a query nevertheless, as in PyTorch, where one can be.
        if context is x and mask is not None and self.layer.traits.cross:
            context = x.view_as(x)  # another object is another sequence
        return self.layer(x, context, mask).tokens


class Multihead(Called):
    """Called as `nn.MultiheadAttention`; it returns no weights.

    PyTorch's encoder layers compute such a module by themselves, unless `in_proj_bias` is None.
    """

    inputs = 3
    in_proj_bias = None

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, None]:  # fmt: skip
        if key is not value:
            raise Unsupported("keys and values are of different tokens; give the same tensor twice")
        if query.ndim == 2:
            axis = 0 if self.batch_first else 1
            one = query.unsqueeze(axis)
            context = one if key is query else key.unsqueeze(axis)
            padding = None if key_padding_mask is None else key_padding_mask[None]
            tokens, _ = self(one, context, context, padding, attn_mask=attn_mask)
            return tokens.squeeze(axis), None
        x, context = query, key
        if not self.batch_first:
            x, context = (tokens.transpose(0, 1) for tokens in (query, key))
        allowed = None if attn_mask is None else allowed_by(attn_mask, blocked=True)
        if allowed is not None and allowed.ndim == 3:
            allowed = allowed.unflatten(0, (-1, self.num_heads))
        mask = self.mask_of(allowed, x, context)
        if key_padding_mask is not None:
            real = allowed_by(key_padding_mask, blocked=True)
            mask = real if mask is None else mask & real
        tokens = self.attended(x, x if key is query else context, mask)
        return tokens if self.batch_first else tokens.transpose(0, 1), None


class Joint(Called):
    """Called as timm's `Attention`."""

    def forward(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        allowed = None if attn_mask is None else allowed_by(attn_mask, blocked=False)
        if is_causal and allowed is None:
            allowed = x.new_ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return self.proj_drop(self.attended(x, x, self.mask_of(allowed, x, x)))


def allowed_by(mask: Tensor, *, blocked: bool) -> Tensor:
    # Of a boolean mask, where True may mean blocked, or of zeros and -inf.
    if mask.dtype == torch.bool:
        return ~mask if blocked else mask
    allowed = mask == 0
    if not bool((allowed | (mask == -torch.inf)).all()):
        raise Unsupported("a mask of other numbers than 0 and -inf adds a bias to the products; "
                          "give a boolean mask")  # fmt: skip
    return allowed
