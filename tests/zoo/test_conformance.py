"""The checks: every registered variant passes them, and every planted lie is caught by its own."""

from types import MappingProxyType

import jaxtyping
import pytest
import torch

from tests.zoo.liars import LIES
from tests.zoo.liars.causality import CountsTheFuture
from tests.zoo.liars.honest import HONEST, Bidirectional, Honest, MeanOfAll, Recurrent
from tests.zoo.liars.numerics import DropsInEvaluation, WidensHalfPrecision
from zoo.conformance import CHECKS, Finding, Result, checks_for, locate, parametrize, run, subjects
from zoo.conformance.subject import distance
from zoo.projected import ProjectedAttention
from zoo.registry import UserError
from zoo.variants import variants
from zoo.variants.softmax import Softmax

NAN = float("nan")

PAIRS = [
    pytest.param(subject, check, id=f"{subject.form}: {check.name}")
    for name, found in variants.items()
    if not found.unchecked
    for subject in subjects(name, found)
    for check in checks_for(subject)
]


@pytest.fixture(autouse=True)
def unchecked_shapes():
    """One graph cannot trace the wrapper that checks shapes elsewhere in the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(("subject", "check"), PAIRS)
def test_a_registered_variant_is_what_it_claims(subject, check):
    result = run(check, subject)
    assert result.passed, result.finding.figure


def caught(variant, meant: str = "") -> set[str]:
    """The checks that fail, in any form; the slow ones run only where they are meant."""
    slow = {"compiles", "vmap", "linear memory"} - {meant}
    return {
        check.name
        for subject in subjects(variant.__name__, variant)
        for check in checks_for(subject)
        if check.name not in slow and not run(check, subject).passed
    }


@pytest.mark.parametrize("variant", [Honest, Recurrent, MeanOfAll])
def test_an_honest_variant_passes_every_check(variant):
    assert caught(variant) == set()


@pytest.mark.parametrize("liar", LIES, ids=lambda liar: liar.__name__)
def test_a_lie_is_caught_by_the_check_that_is_meant_for_it_and_by_no_stranger(liar):
    meant, bystanders = LIES[liar]
    found = caught(liar, meant)
    assert meant in found
    assert found <= {meant} | bystanders


def test_every_check_that_can_fail_is_meant_for_some_lie():
    # Token mixing is reported, whichever it is; outputs that are no numbers fail other checks, too.
    can_fail = {check.name for check in CHECKS} - {"token mixing"}
    assert {meant for meant, _ in LIES.values()} == can_fail


def test_a_declared_gap_is_no_failure_and_an_unexpected_pass_is():
    class Gapped(DropsInEvaluation):
        expected_failures = MappingProxyType(
            {"eval is deterministic": "dropout is always on", "lengths": "none"}
        )

    (subject, _) = subjects("gapped", Gapped)
    results = {
        check.name: run(check, subject)
        for check in CHECKS
        if check.name in Gapped.expected_failures
    }
    assert results["eval is deterministic"].passed and results["eval is deterministic"].gap
    assert not results["lengths"].passed


def test_a_gap_of_the_causal_form_is_none_of_the_other():
    class Gapped(CountsTheFuture):
        expected_failures = MappingProxyType({"padding invariance, causal": "it only says so"})

    check = next(check for check in CHECKS if check.name == "padding invariance")
    usual, causal = (run(check, subject) for subject in subjects("gapped", Gapped))
    assert usual.passed and not usual.gap
    assert not causal.passed and causal.gap == "it only says so"


def test_a_gap_in_a_check_that_there_is_not_is_refused():
    class Gapped(Honest):
        expected_failures = MappingProxyType({"padding unfellt": "misspelt"})

    with pytest.raises(UserError, match="did you mean 'padding invariance'"):
        subjects("gapped", Gapped)


def test_what_cannot_be_checked_is_refused_with_its_reason():
    class Elsewhere(Honest):
        unchecked = "it runs on another planet"

    with pytest.raises(UserError, match="elsewhere cannot be checked: it runs on another planet"):
        subjects("elsewhere", Elsewhere)


class Optional(Honest):
    def __init__(self, size, *, rank: int = 30):
        super().__init__(size)
        self.rank = rank


def test_a_variant_is_checked_with_the_options_that_are_given():
    for subject in subjects("optional", Optional, {"rank": "7"}):
        assert subject.layer().rank == 7
    with pytest.raises(UserError, match=r"optional\.rank=x"):
        subjects("optional", Optional, {"rank": "x"})


class Fragile(Honest):
    def __init__(self, size):
        super().__init__(size)
        raise KeyError("glass")


def test_a_variant_that_cannot_be_built_is_refused_before_any_check():
    with pytest.raises(UserError, match=r"fragile cannot be built .KeyError: .glass."):
        subjects("fragile", Fragile)
    with pytest.raises(UserError, match=r"primal\.rank=0 must be at least 1"):
        subjects("primal", variants.find("primal"), {"rank": 0})


class GivesNaN(Bidirectional):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * NAN


@pytest.mark.parametrize("name", ["token mixing", "position sensitivity"])
def test_what_is_no_number_hears_nothing(name):
    (subject,) = subjects("nan", GivesNaN)
    check = next(check for check in CHECKS if check.name == name)
    assert not run(check, subject).passed


def test_a_leak_is_told_with_the_future_that_shows_it():
    (_, subject) = subjects("counts", CountsTheFuture)
    check = next(check for check in CHECKS if check.name == "causality")
    assert "by a future left out from token 1 on" in run(check, subject).finding.figure


class Needy(Bidirectional):
    def __init__(self, size, *, rank: int):
        super().__init__(size)


def test_a_variant_that_needs_an_option_refuses_causality_as_itself():
    check = next(check for check in CHECKS if check.name == "rejects causal")
    (subject,) = subjects("needy", Needy, {"rank": 7})
    assert run(check, subject).finding.figure.startswith("refused: Needy is not causal")


def test_a_module_that_changes_its_precision_is_told_to_which():
    check = next(check for check in CHECKS if check.name == "precisions")
    (subject,) = subjects("wide", WidensHalfPrecision)
    figure = run(check, subject).finding.figure
    assert figure.count("came out as") == 1 and "and came out as float32, autocast" in figure


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.2),
        ([0.1, 0.2], [0.1, 0.3], 0.1),
        ([], [], 0.0),
        ([], [1.0], float("inf")),
        ([1.0], [1.0, 1.0], float("inf")),
        ([NAN], [1.0], float("inf")),
        ([1.0], [NAN], float("inf")),
    ],
)
def test_a_distance_misses_no_shape_and_no_nan(one, other, expected):
    assert distance(torch.tensor(one), torch.tensor(other)) == pytest.approx(expected)


class Unannotated(Honest):
    def __init__(self, size, *, rank=30):
        super().__init__(size)


class ByPlace(Honest):
    def __init__(self, size, rank: int = 30):
        super().__init__(size)


class Swallows(Honest):
    def __init__(self, size, **options):
        super().__init__(size)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        (Unannotated, "annotate it"),
        (ByPlace, r"rank: int = 30 by its place; put a \* before"),
        (Swallows, r"\*\*options"),
    ],
)
def test_options_that_a_run_could_not_give_are_refused(variant, message):
    with pytest.raises(UserError, match=message):
        subjects("mine", variant)


def test_what_a_variant_raises_is_a_finding():
    class Raises(Honest):
        def attend(self, q, k, v, mask):
            raise RuntimeError("boom\nand more")

    (subject, _) = subjects("raises", Raises)
    assert run(CHECKS[0], subject).finding == Finding(False, "raised RuntimeError: boom")


def test_a_result_without_a_gap_is_its_finding():
    assert Result("c", "f", Finding(True, ""), "").passed
    assert not Result("c", "f", Finding(False, ""), "").passed


def test_a_variant_is_located_by_name_or_by_module_and_class():
    assert locate("softmax") is Softmax
    assert locate("zoo.variants.softmax:Softmax") is Softmax


class Unfinished(ProjectedAttention):
    traits = HONEST


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("softmix", "did you mean 'softmax'"),
        ("no.such.module:A", "cannot be loaded .ModuleNotFoundError"),
        ("zoo.variants.softmax:Nothing", "cannot be loaded .AttributeError"),
        ("zoo.variants.softmax:naive", "TypeError: naive is not a subclass"),
        ("zoo.contract:Attention", "Attention sets no class attribute 'traits'"),
        (f"{__name__}:Unfinished", "Unfinished does not define attend"),
        ("softmax+primal", "'softmax.primal' is a composition; check its variants one by one"),
    ],
)
def test_what_cannot_be_located_is_refused_with_its_name(name, message):
    with pytest.raises(UserError, match=message):
        locate(name)


def test_outsiders_get_every_check_of_every_form_as_a_test():
    mark = parametrize(Honest)
    pairs = mark.args[1]
    expected = [(s, c) for s in subjects("Honest", Honest) for c in checks_for(s)]
    assert pairs == expected
