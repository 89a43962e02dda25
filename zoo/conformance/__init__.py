"""Conformance checks: tests of the claims of a variant.

`checks_for(configuration)` selects those that apply to its traits; `examine(configuration)` runs
them. `harness check`, `zoo.check`, the tests of every registered variant and, through
`parametrize`, the tests of variants in other packages run these same checks.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import torch

from zoo.conformance import (
    causality,
    claimed,
    determinism,
    gradients,
    mixing,
    numerics,
    packed,
    padding,
    recurrence,
    transforms,
)
from zoo.conformance.configuration import Configuration, Outcome
from zoo.contract import CAUSAL_SUFFIX, WITH_PADDING, Attention
from zoo.library import Variant, name_and_class
from zoo.registry import (
    UserError,
    Value,
    build,
    checked,
    in_one_line,
    load_guarded,
    resolve,
    unknown,
)
from zoo.variants import variants

if TYPE_CHECKING:
    import pytest

__all__ = [
    "CHECKS", "CHECKS_VERSION", "Check", "Configuration", "Outcome", "Result", "check",
    "checks_for", "configurations", "examine", "locate", "parametrize", "require_check", "run",
]  # fmt: skip


class Check(NamedTuple):
    """One check: its group, its name, the function, and which configurations it applies to."""

    group: str
    name: str
    run: Callable[[Configuration], Outcome]
    needs: str = ""  # A claim of those that it applies to
    unless: str = ""  # A claim of those that it does not apply to
    fast: bool = True  # It takes less than a second for most variants

    def applies(self, configuration: Configuration) -> bool:
        of = claims(configuration)
        return bool(of.get(self.needs, True)) and not of.get(self.unless, False)


class Result(NamedTuple):
    """The outcome of the check of a variant, whose name ends in ", causal" for its causal form.

    `expected_failure` is the declared reason of a failure; empty if none is declared.
    """

    check: str
    variant: str
    outcome: Outcome
    expected_failure: str

    @property
    def passed(self) -> bool:
        """Return whether the outcome is as declared: a pass, or a failure that is expected."""
        return self.outcome.passed != bool(self.expected_failure)

    @property
    def detail(self) -> str:
        """The measured value that decided the outcome, as text."""
        return self.outcome.detail


def claims(configuration: Configuration) -> dict[str, object]:
    traits, causal = configuration.traits, configuration.causal
    packs = not {*WITH_PADDING} & {*configuration.variant.expected_failures_of(causal=causal)}
    return {
        **vars(traits),
        "causal form": traits.causal,
        "causal": causal,
        "crosses": configuration.crosses,
        "decodes": configuration.variant.decodes() and causal,
        "identities": bool(claimed.identities_of(configuration)),
        "packs": packs,
        "packs and decodes": packs and configuration.variant.decodes() and causal,
        "recurrent": traits.recurrent and causal,
    }


# The version of the checks: raised where a check is added or is stricter, or tests other inputs, so
# that certificates of before are out of date. It stays where every variant was checked again and
# passes as before.
CHECKS_VERSION = 2

CHECKS: tuple[Check, ...] = (
    Check("shapes and precisions", "lengths", numerics.check_lengths),
    Check("shapes and precisions", "memory layouts", numerics.check_layouts),
    Check("shapes and precisions", "precisions", numerics.check_precisions),
    Check("shapes and precisions", "large inputs", numerics.check_large_inputs),
    Check("shapes and precisions", "large inputs, fp16", gradients.check_half),
    Check("gradients", "all parameters get gradients", gradients.check_parameters),
    Check("gradients", "gradients", gradients.check_finite_differences),
    Check("gradients", "gradients, long inputs", gradients.check_long, fast=False),
    Check("gradients", "gradients, fp32 and bf16", gradients.check_precisions),
    Check("gradients", "gradients, backward under autocast", gradients.check_autocast),
    Check("gradients", "second derivatives", gradients.check_second),
    Check("gradients", "auxiliary loss does not dominate", claimed.check_dominance, needs="losses"),
    Check("padding", "padding invariance", padding.check_invariance),
    Check("padding", "padding invariance, long inputs", padding.check_long, fast=False),
    Check("padding", "truncation equivalence", padding.check_truncation),
    Check("padding", "fully masked input", padding.check_fully_masked_input),
    Check("padding", "packed equals separate", packed.check_packed, needs="packs"),
    Check(
        "padding", "packed prompts equal separate", packed.check_prefill, needs="packs and decodes"
    ),
    Check("padding", "rejects packed sequences", packed.check_refusal, unless="packs"),
    Check("batch", "empty batch", padding.check_empty_batch),
    Check("batch", "batch independence", padding.check_batch_independence),
    Check("batch", "batch independence, large batches", padding.check_large_batches, fast=False),
    Check("causality", "causality", causality.check_every_pair, needs="causal"),
    Check("causality", "causality, long inputs", causality.check_long, needs="causal", fast=False),
    Check("causality", "causality, fp32", causality.check_fp32, needs="causal"),
    Check("receptive field", "token mixing", mixing.report_token_mixing),
    Check("receptive field", "position sensitivity", mixing.check_position_sensitivity),
    Check("receptive field", "causal receptive field", mixing.check_causal_form, needs="causal"),
    Check("receptive field", "cross-attention", mixing.check_cross_attention, needs="crosses"),
    Check("rejections", "rejects causal", claimed.check_causal, unless="causal form"),
    Check("rejections", "rejects bidirectional", claimed.check_form, unless="bidirectional"),
    Check("rejections", "rejects cross-attention", claimed.check_context, unless="cross"),
    Check("rejections", "rejects recurrence", claimed.check_recurrence, unless="decodes"),
    Check("rejections", "rejects non-boolean mask", claimed.check_mask),
    Check("identities", "identities", claimed.check_identities, needs="identities"),
    Check("determinism", "eval is deterministic", determinism.check_eval),
    Check("determinism", "no dropout in eval", determinism.check_dropout),
    Check("determinism", "seeded determinism", determinism.check_seed),
    Check("determinism", "train equals eval", determinism.check_modes, unless="stochastic"),
    Check("determinism", "no_grad equals grad", determinism.check_without_gradients),
    Check("determinism", "declared dropout", determinism.check_declared_dropout),
    Check("state", "declared losses", claimed.check_declared_losses),
    Check("state", "side-effect-free forward", determinism.check_side_effects),
    Check("state", "state_dict round trip", determinism.check_state_dict),
    Check("state", "linear layers are called", transforms.check_called),
    Check("transforms", "compiles", transforms.check_compile, fast=False),
    Check("transforms", "export", transforms.check_export, fast=False),
    Check("transforms", "vmap", transforms.check_vmap),
    Check("recurrence", "step equals forward", recurrence.check_steps, needs="decodes"),
    Check("recurrence", "prefill equals steps", recurrence.check_prefill, needs="decodes"),
    Check("recurrence", "constant-size state", recurrence.check_state_size, needs="recurrent"),
    Check("recurrence", "side-effect-free step", recurrence.check_side_effects, needs="decodes"),
    Check("linear cost", "linear FLOPs", claimed.check_flops, needs="linear", fast=False),
    Check("linear cost", "linear memory", claimed.check_memory, needs="linear", fast=False),
)


def locate(name: str) -> type[Attention]:
    """The variant registered as `name`, or the class at `MODULE:CLASS`."""
    if "+" in name:
        raise UserError(f"{name!r} is a composition; check its variants one by one")
    if ":" not in name:
        return variants.find(name)
    module, _, attribute = name.partition(":")
    try:
        variant = load_guarded(lambda: getattr(import_module(module), attribute))
        variants.check(variant)
    except Exception as error:
        raise UserError(f"{name!r} cannot be loaded ({in_one_line(error)}); fix it, or give "
                        "another MODULE:CLASS") from error  # fmt: skip
    return variant


def configurations(
    name: str, variant: type[Attention], options: Mapping[str, Value] = MappingProxyType({})
) -> list[Configuration]:
    """The forms that a variant claims to have, bidirectional or causal, with those options."""
    if variant.unchecked:
        raise UserError(f"{name} cannot be checked: {variant.unchecked}")
    for check in variant.expected_failures:
        require_check(check.removesuffix(CAUSAL_SUFFIX), f"{name} expects a failure: ")
    resolved = resolve(name, variant, options)
    forms = variant.traits.forms
    result = [Configuration(name, variant, causal, resolved) for causal in forms]
    for configuration in result:
        build(configuration.label, configuration.layer)
    return result


def require_check(name: str, where: str = "") -> None:
    """Raise `UserError`, which begins with `where`, if there is no check of that name."""
    names = [check.name for check in CHECKS]
    if name not in names:
        raise UserError(where + unknown("check", name, names))


def checks_for(
    configuration: Configuration, *, fast: bool = False, only: Collection[str] = ()
) -> Iterator[Check]:
    """The checks that apply to a form, in order: the `fast` ones, those of the names in `only`."""
    return (
        check
        for check in CHECKS
        if check.applies(configuration)
        and (check.fast or not fast)
        and (not only or check.name in only)
    )


def run(check: Check, configuration: Configuration) -> Result:
    """Run one check; any error that the variant raises is a failure, but for Ctrl-C.

    The random generator starts from the same seed in every check; the caller's state is restored.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            outcome = check.run(configuration)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Also SystemExit: a variant must not end the process that checks it.
        outcome = Outcome(False, f"raised {in_one_line(error)}")
    reasons = configuration.variant.expected_failures_of(causal=configuration.causal)
    return Result(check.name, configuration.label, outcome, reasons.get(check.name, ""))


def examine(configuration: Configuration) -> Iterator[Result]:
    return (run(check, configuration) for check in checks_for(configuration))


def parametrize(variant: type[Attention]) -> "pytest.MarkDecorator":
    """A pytest mark for the tests of a variant in another package.

    Every check of every form becomes a test with the arguments `configuration` and `check`:

        @parametrize(MyVariant)
        def test_my_variant_conforms(configuration, check):
            result = run(check, configuration)
            assert result.passed, result.detail
    """
    import pytest

    pairs = [
        (configuration, check)
        for configuration in configurations(variant.name(), variant)
        for check in checks_for(configuration)
    ]
    ids = [f"{configuration.label}: {check.name}" for configuration, check in pairs]
    return pytest.mark.parametrize(("configuration", "check"), pairs, ids=ids)


@checked
def check(variant: Variant, **options: Value) -> list[Result]:
    """Run every conformance check that applies to a variant, in all its forms.

    Returns:
        One result per check and form, each with `check`, `variant` (its name and form), `passed`
        and `detail`.
    """
    return [
        result
        for configuration in configurations(*name_and_class(variant), options)
        for result in examine(configuration)
    ]
