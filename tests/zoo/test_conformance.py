"""The checks: every registered variant passes them, and every planted lie is caught by its own."""

from types import MappingProxyType

import jaxtyping
import pytest
import torch
from torch import nn

from zoo.conformance import CHECKS, Finding, Result, checks_for, locate, parametrize, run, subjects
from zoo.contract import Attended, Attention, Traits
from zoo.projected import ProjectedAttention
from zoo.registry import Refused
from zoo.variants import variants
from zoo.variants.softmax import Softmax, naive

HONEST = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)
SELF_ONLY = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)

PAIRS = [
    pytest.param(subject, check, id=f"{subject.form}: {check.name}")
    for name, found in variants.items()
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


class Honest(ProjectedAttention):
    """Softmax, literally."""

    traits = HONEST

    def attend(self, q, k, v, keep):
        return naive(q, k, v, keep, self.size.causal, 0.0)


class LeaksThroughAMaximum(Honest):
    """Scales values by a maximum over all tokens, future ones included."""

    def attend(self, q, k, v, keep):
        real = v if keep is None else v.masked_fill(~keep[:, None, :, None], 0.0)
        return super().attend(q, k, v, keep) * (1 + real.abs().amax((-2, -1), keepdim=True))


class MasksValuesOnly(Honest):
    """Padded keys stay in the denominator."""

    def attend(self, q, k, v, keep):
        if keep is not None:
            v = v.masked_fill(~keep[:, None, :, None], 0.0)
        return naive(q, k, v, None, self.size.causal, 0.0)


class ScalesByTheBatch(Honest):
    """A maximum over the whole batch."""

    def attend(self, q, k, v, keep):
        return super().attend(
            q, k / k.abs().max().clamp_min(1e-6), v, None if keep is None else keep
        )


class QuadraticButLinear(Honest):
    """Claims a linear cost."""

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)


class DetachesItsQueries(Honest):
    """The projection of queries learns nothing."""

    def attend(self, q, k, v, keep):
        return super().attend(q.detach(), k, v, keep)


class HidesALoss(Honest):
    """Returns a loss that its traits do not name."""

    def forward(self, x, context, keep):
        tokens = super().forward(x, context, keep).tokens
        return Attended(tokens, {"secret": tokens.square().mean()} if self.training else {})


class DropsInEvaluation(Honest):
    """Dropout that does not ask whether it is training."""

    def attend(self, q, k, v, keep):
        return nn.functional.dropout(super().attend(q, k, v, keep), 0.1, training=True)


class IgnoresTheContext(Honest):
    """Attends to its own input, whatever the context."""

    def forward(self, x, context, keep):
        return super().forward(x, x, None if context is not x else keep)


class CountsItsCalls(Honest):
    """Writes a buffer in forward."""

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, context, keep):
        self.calls = self.calls + 1
        return super().forward(x, context, keep)


class OverflowsWhenLoud(Honest):
    """Exponentials without a maximum."""

    def attend(self, q, k, v, keep):
        weights = (q @ k.mT).exp()
        if keep is not None:
            weights = weights * keep[:, None, None, :]
        return weights @ v / weights.sum(-1, keepdim=True).clamp_min(1e-30)


class TakesAForeignContext(Attention):
    """Claims none, and does not say no."""

    traits = SELF_ONLY

    def __init__(self, size):
        super().__init__(size)
        self.map = nn.Linear(size.dim, size.dim)

    def forward(self, x, context, keep):
        return Attended(self.map(x))


PADDING = {"padding unfelt", "padded = truncated", "context heard"}
FUTURE = {"future unseen", "future unseen, fp32"}

LIES = {
    LeaksThroughAMaximum: ("future unseen", FUTURE),
    MasksValuesOnly: ("padding unfelt", PADDING),
    ScalesByTheBatch: ("batch-mates unfelt", PADDING | FUTURE),
    QuadraticButLinear: ("linear FLOPs", set()),
    DetachesItsQueries: ("parameters learn", {"gradients"}),
    HidesALoss: ("losses as declared", set()),
    # Whatever compares two calls finds them different.
    DropsInEvaluation: ("evaluation repeats", {check.name for check in CHECKS}),
    IgnoresTheContext: ("context heard", set()),
    CountsItsCalls: ("pure forward", set()),
    OverflowsWhenLoud: ("loud inputs", FUTURE),
    TakesAForeignContext: ("context refused", set()),
}
"""Which check is meant for each lie, and which others cannot but stumble over it."""


def caught(variant) -> set[str]:
    """The checks that fail, in any form, but for those that only cost time here."""
    return {
        check.name
        for subject in subjects(variant.__name__, variant)
        for check in checks_for(subject)
        if check.name not in ("compiles", "vmap", "linear memory")
        and not run(check, subject).passed
    }


def test_an_honest_variant_passes_every_check():
    assert caught(Honest) == set()


@pytest.mark.parametrize("liar", LIES, ids=lambda liar: liar.__name__)
def test_a_lie_is_caught_by_the_check_that_is_meant_for_it_and_by_no_stranger(liar):
    meant, bystanders = LIES[liar]
    found = caught(liar)
    assert meant in found
    assert found <= {meant} | bystanders


def test_a_declared_gap_is_no_failure_and_an_unexpected_pass_is():
    class Gapped(DropsInEvaluation):
        gaps = MappingProxyType({"evaluation repeats": "dropout is always on", "lengths": "none"})

    (subject, _) = subjects("gapped", Gapped)
    results = {check.name: run(check, subject) for check in CHECKS[:17]}
    assert results["evaluation repeats"].passed and results["evaluation repeats"].gap
    assert not results["lengths"].passed


def test_what_a_variant_raises_is_a_finding():
    class Raises(Honest):
        def attend(self, q, k, v, keep):
            raise RuntimeError("boom\nand more")

    (subject, _) = subjects("raises", Raises)
    assert run(CHECKS[0], subject).finding == Finding(False, "raised RuntimeError: boom")


def test_a_result_without_a_gap_is_its_finding():
    assert Result("c", "f", Finding(True, ""), "").passed
    assert not Result("c", "f", Finding(False, ""), "").passed


def test_a_variant_is_located_by_name_or_by_module_and_class():
    assert locate("softmax") is Softmax
    assert locate("zoo.variants.softmax:Softmax") is Softmax


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("softmix", "did you mean 'softmax'"),
        ("no.such.module:A", "cannot be loaded .ModuleNotFoundError"),
        ("zoo.variants.softmax:Nothing", "cannot be loaded .AttributeError"),
        ("zoo.variants.softmax:naive", "is no subclass"),
    ],
)
def test_what_cannot_be_located_is_refused_with_its_name(name, message):
    with pytest.raises(Refused, match=message):
        locate(name)


def test_outsiders_get_every_check_of_every_form_as_a_test():
    mark = parametrize(Honest)
    pairs = mark.args[1]
    expected = [(s, c) for s in subjects("Honest", Honest) for c in checks_for(s)]
    assert pairs == expected
