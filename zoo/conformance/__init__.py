"""The checks that prove or refute what a variant claims.

`checks_for(subject)` picks those that its traits call for; `examine(subject)` runs them. The same
checks stand behind `harness check`, behind the tests of every registered variant, and, through
`parametrize`, behind the tests of variants that live elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import torch

from zoo.conformance import causality, growth, numerics, padding, recurrence
from zoo.conformance.subject import Finding, Subject
from zoo.contract import CAUSAL_ALONE, Attention
from zoo.registry import UserError, Value, built, foreign, in_one_line, resolve, unknown
from zoo.variants import variants

if TYPE_CHECKING:
    import pytest

__all__ = [
    "CHECKS",
    "Check",
    "Finding",
    "Result",
    "Subject",
    "checks_for",
    "examine",
    "locate",
    "parametrize",
    "run",
    "subjects",
]


class Check(NamedTuple):
    """One check: what it belongs to, its name, what it runs, and for whom."""

    group: str
    name: str
    run: Callable[[Subject], Finding]
    applies: Callable[[Subject], bool]


class Result(NamedTuple):
    """A check's finding, beside the gap that the variant declares for it, if it does."""

    check: str
    form: str
    finding: Finding
    gap: str

    @property
    def passed(self) -> bool:
        """Whether all is as declared: right, or wrong where a gap says so."""
        return self.finding.passed != bool(self.gap)


def _always(_: Subject) -> bool:
    return True


def _claims(trait: str, yes: bool = True) -> Callable[[Subject], bool]:
    return lambda subject: bool(getattr(subject.traits, trait)) is yes


def _causal(subject: Subject) -> bool:
    return subject.causal


def _crosses(subject: Subject) -> bool:
    return subject.traits.cross and not subject.causal


def _recurs(subject: Subject) -> bool:
    return subject.traits.recurrent and subject.causal


def _never_recurs(subject: Subject) -> bool:
    return not _recurs(subject)


CHECKS: tuple[Check, ...] = (
    Check("shapes and precisions", "lengths", numerics.every_length_runs, _always),
    Check("shapes and precisions", "precisions", numerics.every_precision_runs, _always),
    Check("shapes and precisions", "large inputs", numerics.loud_inputs_stay_finite, _always),
    Check("gradients", "all parameters get gradients", numerics.every_parameter_learns, _always),
    Check("gradients", "gradients", numerics.gradients_are_right, _always),
    Check("padding", "padding invariance", padding.padding_is_never_felt, _always),
    Check("padding", "truncation equivalence", padding.padded_is_truncated, _always),
    Check("padding", "fully masked input", padding.nothing_real_stays_finite, _always),
    Check("batch-mates", "batch independence", padding.batch_mates_are_never_felt, _always),
    Check("future", "causality", causality.the_future_is_never_seen, _causal),
    Check(
        "future",
        "causality, fp32",
        causality.the_future_is_unseen_in_single_precision,
        _causal,
    ),
    Check("tokens heard", "token mixing", causality.tokens_mix, _always),
    Check("tokens heard", "position sensitivity", causality.order_is_felt, _always),
    Check("tokens heard", "causal receptive field", causality.the_past_is_heard, _causal),
    Check("tokens heard", "cross-attention", causality.a_foreign_context_is_heard, _crosses),
    Check("refusals", "rejects causal", causality.causality_is_refused, _claims("causal", False)),
    Check(
        "refusals",
        "rejects cross-attention",
        causality.a_foreign_context_is_refused,
        _claims("cross", False),
    ),
    Check("refusals", "rejects recurrence", recurrence.recurrence_is_refused, _never_recurs),
    Check("repeatability", "eval is deterministic", numerics.evaluation_repeats, _always),
    Check("repeatability", "seeded determinism", numerics.one_seed_gives_one_result, _always),
    Check(
        "repeatability",
        "train equals eval",
        numerics.training_is_evaluation,
        _claims("stochastic", False),
    ),
    Check("repeatability", "declared losses", numerics.losses_are_as_declared, _always),
    Check("repeatability", "side-effect-free forward", numerics.forward_is_pure, _always),
    Check("repeatability", "state_dict round trip", numerics.state_round_trips, _always),
    Check("transforms", "compiles", numerics.it_compiles, _always),
    Check("transforms", "vmap", numerics.seeds_run_at_once, _always),
    Check("recurrence", "step equals forward", recurrence.steps_are_the_forward, _recurs),
    Check("recurrence", "constant-size state", recurrence.the_state_is_fixed, _recurs),
    Check("recurrence", "side-effect-free step", recurrence.steps_are_pure, _recurs),
    Check("linear cost", "linear FLOPs", growth.operations_grow_linearly, _claims("linear")),
    Check("linear cost", "linear memory", growth.memory_grows_linearly, _claims("linear")),
)


def locate(name: str) -> type[Attention]:
    """The variant registered as `name`, or the class at `MODULE:CLASS`.

    Raises:
        UserError: there is none, or it is no attention variant.
    """
    if "+" in name:
        raise UserError(f"{name!r} is a composition; check its variants one by one")
    if ":" not in name:
        return variants.find(name)
    module, _, attribute = name.partition(":")
    try:
        found = foreign(lambda: getattr(import_module(module), attribute))
        variants.require(found)
    except Exception as error:
        reason = in_one_line(error)
        raise UserError(
            f"{name!r} cannot be loaded ({reason}); mend it, or give another MODULE:CLASS"
        ) from error
    return found


def subjects(
    name: str, variant: type[Attention], options: Mapping[str, Value] = MappingProxyType({})
) -> list[Subject]:
    """The forms of a variant that it claims to have, with those options.

    Raises:
        UserError: the variant cannot be checked or built, declares a gap in a check that there is
            not, or takes its options in a way that a run could not give them.
    """
    if variant.unchecked:
        raise UserError(f"{name} cannot be checked: {variant.unchecked}")
    known = [check.name for check in CHECKS]
    for gap in variant.expected_failures:
        if gap.removesuffix(CAUSAL_ALONE) not in known:
            raise UserError(f"{name} declares a gap: {unknown('check', gap, known)}")
    resolved = resolve(name, variant, options)
    forms = (False, True) if variant.traits.causal else (False,)
    found = [Subject(name, variant, causal, resolved) for causal in forms]
    for one in found:
        built(one.form, one.layer)
    return found


def checks_for(subject: Subject) -> Iterator[Check]:
    """The checks that apply to a form of a variant, in order."""
    return (check for check in CHECKS if check.applies(subject))


def run(check: Check, subject: Subject) -> Result:
    """Run one check; whatever the variant raises is a finding.

    Random draws begin at the same place every time, and the caller's are left as they were.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            finding = check.run(subject)
    except Exception as error:
        finding = Finding(False, f"raised {in_one_line(error)}")
    expected_failures = subject.variant.expected_failures_of(causal=subject.causal)
    return Result(check.name, subject.form, finding, expected_failures.get(check.name, ""))


def examine(subject: Subject) -> Iterator[Result]:
    """Run every check that applies."""
    return (run(check, subject) for check in checks_for(subject))


def parametrize(variant: type[Attention]) -> "pytest.MarkDecorator":
    """A pytest mark for the tests of a variant that lives elsewhere.

    Every check of every form becomes a test with the arguments `subject` and `check`:

        @parametrize(MyVariant)
        def test_my_variant_keeps_its_claims(subject, check):
            assert run(check, subject).passed
    """
    import pytest

    pairs = [(one, check) for one in subjects(variant.name(), variant) for check in checks_for(one)]
    ids = [f"{subject.form}: {check.name}" for subject, check in pairs]
    return pytest.mark.parametrize(("subject", "check"), pairs, ids=ids)
