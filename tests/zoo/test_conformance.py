"""Registered variants pass the checks; a faulty variant fails the check for its defect."""

import itertools
import re
from collections.abc import Iterator
from functools import cache
from types import MappingProxyType

import pytest
import torch

from tests.conftest import one_line
from tests.zoo.faulty import FAULTY, correct
from tests.zoo.faulty.defects import ReturnsFp32
from tests.zoo.faulty.leaks import batch_leak, causal_leak, loss_leak, packs, padding_leak
from zoo import conformance
from zoo.conformance import CHECKS, Outcome, Result, checks_for, configurations, run
from zoo.conformance.leaks import separating_masks
from zoo.conformance.tensors import distance
from zoo.variants import variants
from zoo.variants.primal import Primal
from zoo.variants.softmax import Softmax

NAN = float("nan")
BY_NAME = {variant.__name__: variant for variant in FAULTY}
PAIRS = [(0, 1), (63, 64), (148, 149), (5, 131)]
SLOW = {check.name for check in CHECKS if not check.fast} | {
    "causality, fp32", "cross-attention", "step equals forward", "truncation equivalence",
}  # fmt: skip
"""Checks that take seconds: long inputs, large batches, every length, compilers."""


def marked(check: str, *values, name: str, slow: bool = False):
    marks = [pytest.mark.slow] if slow or check in SLOW else []
    return pytest.param(*values, id=name, marks=marks)


REGISTERED = [
    pytest.param(configuration, check, id=f"{configuration.label}: {check.name}")
    for configuration in configurations("primal", Primal)
    for check in checks_for(configuration)
    if check.name not in SLOW
]
"""The fast checks of primal; certificates record every check of every variant."""

CLAIMS = [
    *(("declared dropout", name) for name, of in variants.built_in()
      if of.drops_weights and not of.unchecked and not name.endswith("-lib")),
    *((check, name) for check in ("padding invariance", "prefill equals steps",
                                  "linear layers are called")
      for name in ("softmax", "delta", "fox", "primal-moments", "rwkv7", "cosformer")),
]  # fmt: skip
"""What no golden number holds: random numbers, padding of convolutions, adapters, prompts."""


# One graph cannot trace the wrapper that checks shapes elsewhere in the tests.
pytestmark = pytest.mark.usefixtures("no_type_checks")


def results_of(name: str, variant: type) -> Iterator[Result]:
    return (
        run(check, configuration)
        for configuration in configurations(variant.__name__, variant)
        for check in checks_for(configuration, only=[name])
    )


def failure(name: str, variant: type) -> str:
    return next(result.detail for result in results_of(name, variant) if not result.passed)


@pytest.mark.parametrize(("configuration", "check"), REGISTERED)
def test_a_registered_variant_passes_its_checks(configuration, check):
    result = run(check, configuration)
    assert result.passed, result.detail


@pytest.mark.slow_after(22)
@pytest.mark.parametrize(("check", "name"), CLAIMS)
def test_a_claim_of_a_variant_is_true(check, name):
    results = [*results_of(check, variants.find(name))]
    assert results and all(result.passed for result in results), results


@cache
def scale(width: int) -> float:
    return 0.3 * width


@pytest.mark.slow
def test_what_the_compiler_reports_about_its_tracing_is_no_warning(recwarn):
    # Dynamo warns that it traces a cached function without its cache.
    (result,) = results_of("compiles", attends(lambda out: scale(out.shape[-1]) * out))
    assert result.passed and not recwarn.list, result.detail


EVERY = {check.group for check in CHECKS}
CORRECT = {
    # It has no parameter, as no registered variant.
    correct.MeanOfAll: EVERY,
    # Without a bidirectional form it is `softmax`, and without its claim `linear`: both have
    # certificates of all checks.
    correct.CausalOnly: {"rejections", "receptive field"},
    correct.Recurrent: {"recurrence", "rejections"},
    correct.EqualsSoftmaxAfterPreparation: {"identities"},
    correct.LowRank: {"shapes and precisions"},
    correct.FillsTable: {"state"},
    packs(correct.Recurrent): {"padding"},
}


@pytest.mark.parametrize("variant", CORRECT)
def test_a_correct_variant_passes_every_check(variant):
    for configuration in configurations(variant.__name__, variant):
        for check in checks_for(configuration):
            if check.name not in SLOW and check.group in CORRECT[variant]:
                result = run(check, configuration)
                assert result.passed, f"{check.name}: {result.detail}"


FIRST = {check: variant for variant, check in reversed(FAULTY.items())}
"""Fast tests have the first variant of each check."""


@pytest.mark.parametrize(("variant", "check"), [
    marked(check, variant, check, name=variant.__name__, slow=variant is not FIRST[check])
    for variant, check in FAULTY.items()
])  # fmt: skip
def test_a_faulty_variant_fails_the_check_for_its_defect(variant, check):
    # An error of the planted defect itself would be found by any check.
    assert not failure(check, variant).startswith(("raised TypeError", "raised AttributeError"))


def test_the_lengths_at_which_outputs_are_not_finite_are_found_and_named():
    bad = [1, 2, 17, 128, 160]
    variant = attends(lambda out: NAN * out if out.shape[2] in bad else out)
    assert f"failed at {bad}" in failure("lengths", variant)


@pytest.mark.slow
def test_a_layer_passes_if_one_of_two_compilers_raises(monkeypatch):
    monkeypatch.setattr(conformance.transforms, "BACKENDS", ("aot_eager", "eager"))
    (result,) = results_of("compiles", correct.ActivatesTransposedView)
    assert result.passed
    assert result.detail.startswith("eager: differ by")
    assert "; aot_eager cannot compile it (RuntimeError: view size" in result.detail


def test_every_check_that_can_fail_has_a_faulty_variant():
    # Token mixing is a report: it fails only if outputs are not finite.
    assert set(FAULTY.values()) == {check.name for check in CHECKS} - {"token mixing"}


BOTH = "value and gradient"
SETTINGS = {
    "evaluation": lambda layer, x, mask: not layer.training,
    "rotary": lambda layer, x, mask: layer.size.rotary,
    "three heads": lambda layer, x, mask: layer.size.heads == 3,
    "taps": lambda layer, x, mask: layer.size.short_conv == 4,
    "full": lambda layer, x, mask: x.shape[1] == layer.size.max_len < 1000,
    "dropout and a mask": lambda layer, x, mask: layer.size.dropout > 0 and mask is not None,
}
LOW = {
    "fp32": lambda layer, x, mask: x.dtype == torch.float32,
    "autocast": lambda layer, x, mask: torch.is_autocast_enabled("cpu"),
}
"""A leak that is found in all settings may be in one; causality is not exact in the last two."""
LEAKS = {
    "causality": [
        *(causal_leak(pair, BOTH) for pair in PAIRS),
        *(causal_leak((47, 48), effect, applies)
          for applies in SETTINGS.values() for effect in ("value", "gradient")),
    ],
    "padding invariance": [
        *(padding_leak(pair, BOTH) for i, j in PAIRS for pair in ((i, j), (j, i))),
        padding_leak((48, 47), "gradient"),
        *(padding_leak((47, 48), "value", applies) for applies in (SETTINGS | LOW).values()),
        *(loss_leak(48, effect) for effect in ("value", "gradient")),
    ],
    "batch independence": [
        *(batch_leak(two, (0, 149), BOTH) for two in itertools.permutations(range(4), 2)),
        batch_leak((0, 3), (48, 48), "value"), batch_leak((3, 0), (48, 48), "gradient"),
    ],
}  # fmt: skip


@pytest.mark.slow_after(4)
@pytest.mark.parametrize(
    ("check", "leak"), [(check, leak) for check, leaks in LEAKS.items() for leak in leaks]
)
def test_a_leak_is_found(check, leak):
    assert failure(check, leak)


def test_causality_names_the_output_and_the_tokens():
    for variant, end in (
        (causal_leak((47, 48), "value"), "output 47 changes with the tokens from 48 on"),
        (causal_leak((47, 48), "gradient"), "before 48 has a gradient with respect to token 48"),
        (BY_NAME["ScalesByLength"], "output 0 changes where the tokens from 1 on are left out"),
    ):
        assert failure("causality", variant).endswith(end)


@pytest.mark.parametrize("count", [2, 3, 4, 150])
def test_separating_masks_separate_every_ordered_pair(count):
    masks = separating_masks(count)
    separated = (masks[:, :, None] & ~masks[:, None, :]).any(0)
    assert torch.equal(separated, ~torch.eye(count, dtype=torch.bool))


def attends(change, **attributes) -> type:
    def attend(self, *heads):
        return change(correct.Bidirectional.attend(self, *heads))

    return type("Mine", (correct.Bidirectional,), {"attend": attend, **attributes})


def raises(error: BaseException) -> type:
    return attends(lambda _: (_ for _ in ()).throw(error))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("name", ["lengths", "compiles", "export", "vmap"])
def test_a_variant_that_exits_fails_and_does_not_end_the_process(name):
    # Dynamo itself fails at sys.exit.
    expected = "cannot compile it (" if name == "compiles" else "SystemExit"
    assert expected in failure(name, raises(SystemExit(0)))


def test_an_interrupt_ends_the_checks_and_another_exception_is_a_failure():
    (configuration,) = configurations("interrupts", raises(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        run(CHECKS[0], configuration)
    (configuration,) = configurations("mine", raises(RuntimeError("boom\nand more")))
    assert run(CHECKS[0], configuration).outcome == Outcome(False, "raised RuntimeError: boom")


def declared(name: str, **failures: str) -> type:
    names = {check.replace("_", " "): reason for check, reason in failures.items()}
    return type("Declared", (BY_NAME[name],), {"expected_failures": MappingProxyType(names)})


def test_an_expected_failure_passes_and_an_unexpected_pass_does_not():
    variant = declared("AddsDropoutInEvaluation", eval_is_deterministic="always", lengths="none")
    failed, *_ = results_of("eval is deterministic", variant)
    assert failed.passed and failed.expected_failure == "always"
    unexpected, *_ = results_of("lengths", variant)
    assert not unexpected.passed
    assert Result("c", "f", Outcome(True, ""), "").passed
    assert not Result("c", "f", Outcome(False, ""), "").passed
    # A failure of the causal form does not apply to the other.
    variant = declared("ScalesByLength", **{"lengths, causal": "not true"})
    bidirectional, causal = results_of("lengths", variant)
    assert bidirectional.passed and not bidirectional.expected_failure
    assert not causal.passed and causal.expected_failure == "not true"


class WithOption(correct.Bidirectional):
    def __init__(self, size, *, rank: int):
        super().__init__(size)
        self.rank = rank


def test_a_variant_is_checked_with_options_and_named_by_its_class():
    (configuration,) = configurations("optional", WithOption, {"rank": "7"})
    assert configuration.layer().rank == 7
    check = next(check for check in CHECKS if check.name == "rejects causal")
    assert "WithOption" in run(check, configuration).detail


def unbuildable(error: BaseException) -> type:
    def __init__(self, size):
        raise error

    return type("Unbuildable", (correct.Bidirectional,), {"__init__": __init__})


MISSPELT = MappingProxyType({"padding invarience": "misspelt"})
UNCHECKABLE = [
    (unbuildable(SystemExit(0)), {}, "SystemExit"), (unbuildable(KeyError("glass")), {}, "glass"),
    (Primal, {"rank": 0}, "rank=0"), (WithOption, {"rank": "x"}, "rank=x"),
    (attends(abs, expected_failures=MISSPELT), {}, "invarience"),
    (attends(abs, unchecked="it needs a device"), {}, "it needs a device"),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "options", "named"), UNCHECKABLE)
def test_what_cannot_be_checked_is_an_error_before_any_check(variant, options, named):
    with one_line("mine", named):
        configurations("mine", variant, options)


class OverflowingGate(correct.Bidirectional):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) / (1 + torch.exp(-q))


@pytest.mark.parametrize("name", ["large inputs", "large inputs, fp16"])
def test_the_operation_that_overflows_is_named(name):
    detail = failure(name, OverflowingGate)
    assert re.search(r"; exp in attend \(test_conformance.py, line \d+\) gives infinity", detail)


@pytest.mark.parametrize("name", ["token mixing", "position sensitivity"])
def test_an_output_of_nan_passes_no_check_of_mixing(name):
    assert failure(name, attends(lambda outputs: outputs * NAN))


def test_a_module_that_changes_its_precision_is_reported_with_the_dtype():
    detail = failure("precisions", ReturnsFp32)
    modules = [text for text in detail.split(", ") if text.startswith("bfloat16")]
    assert len(modules) == detail.count("with an output of float32") == 2


DISTANCES = [
    ([1.0, 2.0], [1.0, 2.5], 0.2), ([0.1, 0.2], [0.1, 0.3], 0.1), ([], [], 0.0),
    *((a, b, float("inf")) for a, b in (([], [1.0]), ([1.0], [1.0] * 2), ([NAN], [1.0]))),
    ([1.0], [NAN], float("inf")),
]  # fmt: skip


@pytest.mark.parametrize(("actual", "expected", "result"), DISTANCES)
def test_a_distance_is_infinite_for_other_shapes_and_for_nan(actual, expected, result):
    assert distance(torch.tensor(actual), torch.tensor(expected)) == pytest.approx(result)


UNFOUND = [
    "softmix", "no.such.module:A", "zoo.variants.softmax:Nothing", "zoo.variants.softmax:naive",
    "zoo.contract:Attention", "softmax+primal",
]  # fmt: skip


@pytest.mark.parametrize("name", UNFOUND)
def test_a_name_that_cannot_be_located_is_an_error(name):
    with one_line(name):
        conformance.locate(name)
    found = [conformance.locate(name) for name in ("softmax", "zoo.variants.softmax:Softmax")]
    assert found == [Softmax] * 2
