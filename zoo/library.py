"""Functions for users of the package: create a layer, list variants, say where one is of use."""

import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import NamedTuple, ParamSpec, TypeVar

import torch

from zoo import functional
from zoo.contract import Attention, Size, variants
from zoo.registry import (
    UserError,
    Value,
    allocating,
    build,
    checked,
    first_line,
    options_of,
    resolve,
    unknown,
)
from zoo.traits import Traits, trait_error

Variant = str | type[Attention]
"""A registered name, or a class."""

HINTS = {
    "d_model": "dim", "embed_dim": "dim", "hidden_size": "dim",
    "nhead": "heads", "num_heads": "heads",
    "dim_feedforward": "feed_forward",
    "is_causal": "causal",
    "flash": "backend", "use_flash": "backend",
}  # fmt: skip
"""Names of arguments in other libraries, and ours; `backend` is an option of some variants."""

PLACES = "layer", "transformers", "replace", "export", "gpu"
"""Where a variant may be used: a PyTorch layer; a model of transformers; in place of layers of a
model by `zoo.replace`; a graph of `torch.export`; on a GPU by a fused kernel."""


class Use(NamedTuple):
    """Whether a variant may be used in one of `PLACES`, and how, or the reason why not."""

    works: bool
    detail: str


P = ParamSpec("P")
T = TypeVar("T")


def with_hints(create: Callable[P, T]) -> Callable[P, T]:
    """`create`, whose error for an argument of `HINTS` gives our name for it."""

    @wraps(create)
    def checked(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return create(*arguments, **options)
        except (TypeError, UserError) as error:
            if names := [name for name in options if name in HINTS]:
                renamed = ", ".join(f"{name} is {HINTS[name]}" for name in names)
                raise UserError(f"{renamed} here; rename it: {first_line(error)}") from error
            raise

    return checked


@with_hints
@checked
def create(
    variant: Variant, *, dim: int, heads: int, max_len: int, causal: bool = False,
    dropout: float = 0.0, rotary: bool = False, short_conv: int = 0, **options: Value,
) -> Attention:  # fmt: skip
    """Build one attention layer.

    Args:
        variant: a registered name (`names` lists them) or a subclass of `Attention`.
        dim: model width d, a multiple of `heads`.
        heads: number of heads h.
        max_len: the largest number of tokens of an input; a longer one is rejected.
        causal: whether output i depends on tokens 0..i only.
        dropout: probability of dropping an attention weight; a warning without such weights.
        rotary: whether to apply rotary position embeddings to queries and keys.
        short_conv: taps of the convolution of `zoo.projection`, such as 4; 0 for none.
        **options: options of the variant, such as `rank=30` of `primal`.
    """
    name, attention = name_and_class(variant)
    accepted = [*options_of(attention), *(field.name for field in fields(Size))]
    for option in options:
        if option not in accepted:
            raise UserError(unknown(f"option of {name}", option, accepted))
    size = Size(
        dim=dim, heads=heads, max_len=max_len, causal=causal, dropout=dropout, rotary=rotary,
        short_conv=short_conv,
    )  # fmt: skip
    if dropout and not attention.drops_weights:
        warnings.warn(
            f"dropout={dropout} of attention weights has no effect on {name}, which drops none; "
            "leave it out",
            stacklevel=4,
        )
    resolved = resolve(name, attention, options)
    with allocating(f"{name} with dim={dim} and max_len={max_len}", "lower them"):
        return attention.build(size, resolved)


@checked
def names(**traits: bool | tuple[str, ...]) -> list[str]:
    """Names of the registered variants, sorted; with traits, of those that have these values.

    names(causal=True, linear=True)
    names(losses=("ksvd",))     # variants with exactly this auxiliary loss
    names(losses=())            # variants without auxiliary losses
    """
    valid = [field.name for field in fields(Traits)]
    for trait, value in traits.items():
        if trait not in valid:
            raise UserError(unknown("trait", trait, valid))
        if rule := trait_error(trait, value):
            raise UserError(f"trait {trait}={value!r}; give {rule}")
    return [
        name
        for name, variant in variants.items()
        if all(getattr(variant.traits, trait) == value for trait, value in traits.items())
    ]


@checked
def uses(variant: Variant, *, causal: bool = False, **options: Value) -> dict[str, Use]:
    """Say where a form of a variant can be used, for each of `PLACES`.

    Nothing is run: it is what the variant claims.
    """
    name, attention = name_and_class(variant)
    attention.require_form(causal=causal)
    chosen = tuple(resolve(name, attention, options).items())
    kernel = attention.gpu_kernels.get(causal, "")
    failure = attention.expected_failures_of(causal=causal).get("export", attention.unchecked)
    needed = ", ".join(attention.requires)
    transformers = _use(
        f"attn_implementation='zoo-{name}'",
        lambda: functional.build(name, chosen, (1, 8, 8), 0.0, False, torch.device("cpu"), causal),
    )
    if not transformers.works and causal and attention.decodes():
        transformers = Use(True, f"zoo.transformers.replace(model, {name!r}, ...)")
    return {
        "layer": Use(True, f"needs {needed}" if needed else f"zoo.create({name!r}, ...)"),
        "transformers": transformers,
        "replace": _use(
            f"zoo.replace(model, {name!r}, ...)", lambda: functional.projected_variant(name)
        ),
        "export": Use(not failure, failure or "torch.export, for any batch and length"),
        "gpu": Use(bool(kernel), kernel or "no fused kernel: operations of PyTorch"),
    }


def _use(detail: str, require: Callable[[], object]) -> Use:
    try:
        build(detail, require)
    except UserError as error:
        return Use(False, first_line(error))
    return Use(True, detail)


def name_and_class(variant: Variant) -> tuple[str, type[Attention]]:
    """Return the name of a variant and its class; raise `UserError` for anything else."""
    if not isinstance(variant, str):
        try:
            variants.check(variant)
        except TypeError as error:
            raise UserError(
                f"{first_line(error)}; give a registered name or a complete subclass of Attention"
            ) from error
        return variant.name(), variant
    if "+" in variant:
        raise UserError(f"{variant!r} names several variants; give one of them at a time")
    return variant, variants.find(variant)
