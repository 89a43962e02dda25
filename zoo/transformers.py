"""Variants as attention implementations of the package transformers.

    zoo.transformers.register()
    model = AutoModel.from_pretrained(..., attn_implementation="zoo-linear")

A model keeps its projections, positions and cache; the variant computes the heads. What the variant
cannot honour is refused: docs/library.md says what that is, and
docs/decisions/masks.md how masks are recognised.

    zoo.transformers.replace(model, "gated-delta", match="model.layers.*.self_attn")

A variant that needs more than queries, keys and values takes the place of whole layers of a
decoder, with projections of its own; in generation the cache holds its state.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Attention, State, Unsupported, variants
from zoo.functional import Options, build, compute, projected_variant, read_mask, way_of_last
from zoo.kernels.real_tokens import real_tokens_first
from zoo.library import create
from zoo.packages import load
from zoo.packed import Packed
from zoo.registry import UserError, Value, checked, resolve

# Keywords that models pass on, and that change no attention: any other is refused.
NO_EFFECT = {
    "cache_position", "encoder_attention_mask", "encoder_hidden_states", "num_items_in_batch",
    "output_hidden_states", "output_router_logits", "position_embeddings", "position_ids",
    "return_dict", "use_cache",
}  # fmt: skip

CROSSING = ("is_encoder_decoder", "add_cross_attention")  # Settings of models with cross-attention

# The attributes of the layers that `replace` finds, together with `layer_idx`.
PROJECTIONS = "q_proj", "k_proj", "v_proj", "o_proj"

CPU = torch.device("cpu")


@checked
def register(variant: str = "", **options: Value) -> list[str]:
    """Register a variant with these options, or all that can be, as `zoo-NAME`; return the names.

    Options are part of the name, as in `zoo-local[window=32]`. The names of other variants are
    refused in the first call of a model, which names `replace`.
    """
    models, masks = package("modeling_utils"), package("masking_utils")
    suffix = ",".join(f"{name}={value}" for name, value in options.items())
    registered = []
    for name in [variant] if variant else variants.names():
        try:
            complete = tuple(resolve(name, projected_variant(name), options).items())
            causal = not variants.find(name).traits.bidirectional
            build(name, complete, (1, 8, 8), 0.0, False, CPU, causal)
        except Unsupported:
            if variant:
                raise
            models.AttentionInterface.register(f"zoo-{name}", partial(refuse, name))
            masks.AttentionMaskInterface.register(f"zoo-{name}", partial(refuse, name))
            continue
        key = f"zoo-{name}" + (f"[{suffix}]" if options else "")
        models.AttentionInterface.register(key, partial(attend, name, complete))
        masks.AttentionMaskInterface.register(key, padding_mask)
        registered.append(key)
    return registered


def refuse(variant: str, *_: Any, **__: Any) -> NoReturn:
    remedy = "choose another attn_implementation"
    if variants.find(variant).decodes():
        remedy = f"replace whole layers by zoo.transformers.replace(model, {variant!r})"
    raise Unsupported(f"{variant} is no function of queries, keys and values alone; {remedy}")


@checked
def replace(model: nn.Module, variant: str, *, match: str = "*", **options: Value) -> list[str]:
    """Replace the causal attention layers of a decoder in place; return their paths.

    The new layers have fresh parameters, which are to be trained. Other layers of the model are
    softmax attention by `zoo-softmax` then. `save_pretrained` of the model raises `Unsupported`:
    `from_pretrained` would build the layers of its configuration, and ignore the new ones.

    Args:
        model: a model of transformers whose layers have `q_proj`, `k_proj`, `v_proj`, `o_proj`.
        variant: a registered name, of a variant that decodes.
        match: a pattern of paths in the model, such as `model.layers.*.self_attn`.
        **options: options of the variant, `rotary` and `short_conv`.
    """
    if not variants.find(variant).decodes():
        raise cannot(f"generation, with the variant {variant}, which does not decode")
    old, new, chosen = causal_layers(model, match), {}, cast(dict[str, Any], options)
    for path, module in old.items():
        config, weight = module.config, module.o_proj.weight
        layer = create(
            variant, dim=weight.shape[0], heads=config.num_attention_heads, causal=True,
            max_len=config.max_position_embeddings, **chosen,
        )  # fmt: skip
        new[path] = DecoderLayer(layer.to(weight), module.layer_idx).train(module.training)
    for path, layer in new.items():
        model.set_submodule(path, layer)
    every: list[Any] = [*model.modules()]
    for module in every:
        if hasattr(module, "save_pretrained"):
            module.save_pretrained = refuse_to_save
    register("softmax")
    model.set_attn_implementation("zoo-softmax")  # pyright: ignore[reportCallIssue]
    return [*old]


def causal_layers(model: nn.Module, match: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        path: module
        for path, module in model.named_modules()
        if fnmatchcase(path, match)
        and all(hasattr(module, part) for part in (*PROJECTIONS, "layer_idx"))
    }
    if not found:
        raise UserError(f"no attention layer with {', '.join(PROJECTIONS)} matches {match!r}; give "
                        "a pattern of paths in model.named_modules()")  # fmt: skip
    if other := [path for path, module in found.items() if not getattr(module, "is_causal", True)]:
        raise cannot(f"{other[0]}, which is not causal")
    return found


def refuse_to_save(*_: Any, **__: Any) -> NoReturn:
    raise Unsupported(
        "from_pretrained would not load the layers of zoo.transformers.replace; save "
        "model.state_dict() by torch.save, and load it after the same call of replace"
    )


class DecoderLayer(nn.Module):
    """A causal layer of the zoo, called as the attention layers of decoders are."""

    def __init__(self, layer: Attention, index: int) -> None:
        # `index`: of the layer in the cache.
        super().__init__()
        self.layer, self.layer_idx, self.is_causal = layer, index, True

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, cache: Any = None,
        past_key_values: Any = None, **others: Any,
    ) -> tuple[Tensor, None]:  # fmt: skip
        refuse_others(others)
        x, real, cache = hidden_states, None, past_key_values if cache is None else cache
        if attention_mask is not None and attention_mask.ndim != 2:
            raise cannot(f"a mask of {attention_mask.ndim} dimensions in {self.layer.name()}")
        every = x.new_ones(x.shape[:2], dtype=torch.bool)
        segments = attention_mask if is_packed(attention_mask) else None
        if segments is None:
            if attention_mask is not None:
                every = attention_mask[:, -x.shape[1] :].bool()
                real = None if bool(every.all()) else every
            segments = segments_of(others.get("position_ids"), every)
        # `generate` needs the state in training mode, too; it needs no gradients.
        if cache is None or (self.training and torch.is_grad_enabled()):
            tokens, losses = self.layer(x, mask=real, segments=segments)
            if losses:
                name, names = self.layer.name(), ", ".join(losses)
                raise cannot(f"the auxiliary loss {names} of {name}, which training needs")
            return tokens, None
        entry = state_of(cache, self.layer_idx)
        state, first = entry.state, every.int().argmax(1, keepdim=True)
        begins = known(others.get("position_ids"), every).gather(1, first)[:, 0] == 0
        if state is not None and bool(begins.any()):
            fresh = self.layer.start(len(x))
            state = fresh if bool(begins.all()) else self.layer.where_real(begins, fresh, state)
        tokens, entry.state = self.layer.prefill(x, real, state, segments)
        entry.seen += x.shape[1]
        return tokens, None


def state_of(cache: Any, index: int) -> Any:
    kind = state_layer()
    while len(cache.layers) <= index:
        cache.layers.append(kind())
    if not isinstance(cache.layers[index], kind):
        if cache.layers[index].get_seq_length():
            raise cannot("a cache of keys, which another layer has written")
        cache.layers[index] = kind()
    return cache.layers[index]


@lru_cache(maxsize=1)
def state_layer() -> type:
    class StateLayer(package("cache_utils").DynamicLayer):
        state: State | None = None
        seen = 0

        def select(self, change: Callable[[Tensor], Tensor]) -> None:
            if self.state is not None:
                self.state = tuple(map(change, self.state))

        def get_seq_length(self) -> int:
            return self.seen

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            return self.seen + query_length, 0

        def reset(self) -> None:
            self.state, self.seen = None, 0

        def crop(self, tokens_to_remove: int) -> None:
            raise cannot("a cache that is cut, since a state cannot be")

        def reorder_cache(self, beam_idx: Tensor) -> None:
            self.select(lambda part: part.index_select(0, beam_idx.to(part.device)))

        def batch_select_indices(self, indices: Tensor) -> None:
            self.select(lambda part: part[indices])

        def batch_repeat_interleave(self, repeats: int) -> None:
            self.select(lambda part: part.repeat_interleave(repeats, dim=0))

    return StateLayer


def is_packed(mask: Any) -> bool:
    # What `padding_mask` gives for packed rows; masks of models are boolean, float, or int64.
    return isinstance(mask, Tensor) and mask.dtype == torch.int32


def known(positions: Any, real: Tensor) -> Tensor:
    # Unknown positions count the real tokens: they neither restart nor are 0.
    usable = isinstance(positions, Tensor) and positions.shape[1:] == real.shape[1:]
    return positions.expand_as(real) if usable else real.cumsum(1)


def segments_of(positions: Any, real: Tensor) -> Tensor | None:
    # Of real tokens whose positions restart in a row; None for one sequence in each.
    order, inverse = real_tokens_first(real)
    restarts = F.pad(known(positions, real).gather(1, order).diff() <= 0, (1, 0))
    segments = (restarts.gather(1, inverse) & real).cumsum(1)
    return segments if bool(segments.any()) else None


def refuse_others(others: dict[str, Any]) -> None:
    for name, argument in others.items():
        if name not in NO_EFFECT and argument is not None and argument is not False:
            raise cannot(f"the argument {name!r}")


def padding_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0,
    mask_function: Any = None, attention_mask: Tensor | None = None,
    use_vmap: bool = False, device: Any = "cpu", **_: Any,
) -> Tensor:  # fmt: skip
    # (b, m) of a causal mask, up to the last query; (b, 1, 1, m) of any other. Of packed rows the
    # segments, (b, n): the index of the first token of each.
    masks = package("masking_utils")
    plain = masks.causal_mask_function, masks.bidirectional_mask_function
    mask_function = mask_function or plain[0]
    sizes: dict[str, Any] = {
        "batch_size": batch_size, "q_length": q_length, "kv_length": kv_length,
        "q_offset": q_offset, "attention_mask": attention_mask, "device": device,
        "allow_is_causal_skip": False,
    }  # fmt: skip
    if mask_function not in plain:
        mask = masks.sdpa_mask(**sizes, mask_function=mask_function, use_vmap=use_vmap)
        same = [p for p in plain if torch.equal(masks.sdpa_mask(**sizes, mask_function=p), mask)]
        if not same and "packed_sequence" in composed(mask_function):
            start = mask[:, 0].int().argmax(-1)
            if torch.equal(mask[:, 0], (start[:, :, None] == start[:, None]).tril()):
                return start.int()
        if not same:
            raise cannot(f"the mask {composed(mask_function)}, which is not padding, causal or not")
        mask_function = same[0]
    if dropped := int(kv_offset):
        raise cannot(f"a cache that has dropped {dropped} keys")
    real = masks.prepare_padding_mask(attention_mask, kv_length, 0)
    if real is None:
        real = torch.ones(batch_size, kv_length, dtype=torch.bool, device=device)
    if mask_function is plain[0]:
        # A cache of fixed size has more keys than tokens.
        return real[:, : int(q_offset) + q_length]
    return real[:, None, None, :kv_length]


def attend(
    variant: str, options: Options, module: nn.Module, query: Tensor, key: Tensor, value: Tensor,
    attention_mask: Any, dropout: float = 0.0, scaling: float | None = None,
    is_causal: bool | None = None, s_aux: Tensor | None = None, **others: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    # The interface of transformers: the heads, (b, n, h, e), and no weights. `s_aux` are learned
    # sinks, a logit per head.
    if attention_mask is not None:
        others.pop("sliding_window", None)  # the mask has it
    refuse_others(others)
    causal, mask, segments = read(attention_mask, query, key, others.get("position_ids"),
                                  getattr(module, "is_causal", True)
                                  if is_causal is None else is_causal)  # fmt: skip
    if segments is not None:
        rows = Packed(segments, mask)
        one = partial(attend, variant, options, module, dropout=dropout, scaling=scaling,
                      is_causal=causal, s_aux=s_aux)  # fmt: skip
        inputs = (query, key, value)
        outputs = [one(*map(p.of, inputs), attention_mask=p.mask)[0] for p in rows.parts]
        heads = rows.join([output.transpose(1, 2) for output in outputs])
        return heads.transpose(1, 2).contiguous(), None
    m, groups = mask.shape[1], query.shape[1] // key.shape[1]
    k, v = (part[:, :, :m].repeat_interleave(groups, 1) for part in (key, value))
    scale = query.shape[3] ** -0.5 if scaling is None else scaling
    heads = query, k, v, None if bool(mask.all()) else mask, scale
    config = getattr(module, "config", None)
    max_len, n = getattr(config, "max_position_embeddings", None) or m, query.shape[2]
    if causal and n < m and not hasattr(config, "max_position_embeddings"):
        raise cannot("a cache in a model without max_position_embeddings")
    if s_aux is not None:
        if not projected_variant(variant).sink_is_a_key:
            raise cannot(f"learned sinks, with the variant {variant}")
        heads, max_len = with_sink(s_aux, *heads), max_len + 1
    shape = query.shape[1], heads[0].shape[3], max_len
    cores = partial(build, variant, options, shape, dropout, module.training, query.device)
    if causal and n < heads[1].shape[2]:
        out = way_of_last(variant, options, shape, n == 1)(cores, *heads)
    else:
        core = cores(causal)
        # Two sequences may be of equal length.
        crosses = any(getattr(config, name, False) for name in CROSSING)
        if crosses and not causal and not core.traits.cross:
            raise cannot(f"cross-attention, with the variant {variant}")
        out = compute(core, *heads)
    return out[..., : query.shape[3]].transpose(1, 2).contiguous(), None


def read(
    mask: Any, query: Tensor, key: Tensor, positions: Any, is_causal: bool
) -> tuple[bool, Tensor, Tensor | None]:
    n, every = query.shape[2], key.new_ones(key.shape[0], key.shape[2], dtype=torch.bool)
    if mask is None or is_packed(mask):
        if is_causal and 1 < n != key.shape[2]:
            raise cannot("fewer queries than keys without a mask")
        causal, real = is_causal, every
    elif not isinstance(mask, Tensor):
        raise cannot(f"a mask of type {type(mask).__name__}")
    elif mask.ndim == 2 and mask.dtype == torch.bool:
        causal, real = True, mask
    else:
        causal, real = read_mask(mask, query, key)
    if is_packed(mask) or not causal:
        return causal, real, mask if is_packed(mask) else None
    segments = segments_of(positions, real[:, -n:])
    cached = n < real.shape[1] and isinstance(positions, Tensor) and positions.ndim == 2
    if cached and (segments is not None or bool((positions[:, -1] + 1 < real.sum(1)).any())):
        raise cannot("a cache of packed sequences")
    return causal, real, segments


def with_sink(
    sinks: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, float]:
    # A key before all others, of value 0, whose products are the sinks.
    q, first = F.pad(q, (0, 1), value=1.0), (sinks / scale)[:, None, None]
    k, v = (F.pad(part, (0, 1, 1, 0)) for part in (k, v))
    k = k + F.pad(first, (k.shape[3] - 1, 0, 0, k.shape[2] - 1))
    return q, k, v, None if mask is None else F.pad(mask, (1, 0), value=True), scale


def composed(mask_function: Callable[..., Any]) -> str:
    closure = getattr(mask_function, "__closure__", None) or ()
    values = [variable.cell_contents for variable in closure]
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    inner = ", ".join(composed(each) for each in flat if callable(each))
    name = getattr(mask_function, "__qualname__", repr(mask_function)).split(".")[0]
    return f"{name}({inner})" if inner else name


def package(module: str) -> ModuleType:
    return load("zoo.transformers", f"transformers.{module}", "transformers")


def cannot(what: str) -> Unsupported:
    return Unsupported(f"the zoo cannot honour {what}; choose another attn_implementation")
