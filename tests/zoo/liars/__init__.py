"""Variants that lie, each in one way, and the check that is meant to catch each.

The liars stand by the module of `zoo.conformance` that catches them.
"""

from tests.zoo.liars.causality import (
    BuildsWhatItDoesNotClaim,
    CountsTheFuture,
    HearsItselfOnly,
    HearsTheFirstTokenOnly,
    IgnoresTheContext,
    LeaksThroughAMaximum,
    StandsNowhere,
    SubtractsTheFuture,
    TakesAForeignContext,
)
from tests.zoo.liars.growth import MasksEveryPair, QuadraticButLinear, QuadraticInItsSize
from tests.zoo.liars.numerics import (
    AnswersOtherwiseWhenCompiled,
    BranchesOnItsInput,
    CountsItsCalls,
    CutsOffNothing,
    DetachesItsQueries,
    DrawsFromNowhere,
    DropsInEvaluation,
    HidesALoss,
    HidesAWeight,
    LogsItsCalls,
    LouderInTraining,
    OverflowsWhenLoud,
    TurnsItsGradients,
    WidensHalfPrecision,
    WritesIntoOneBlank,
)
from tests.zoo.liars.padding import (
    DividesByNothing,
    LosesOverPadding,
    MasksInDoublePrecisionOnly,
    MasksInEvaluationOnly,
    MasksValuesOnly,
    ScalesByTheBatch,
    ScalesByTheBatchInTraining,
    TurnsByThePaddedPlace,
)
from tests.zoo.liars.recurrence import (
    CachesBeforehand,
    KeepsEveryKey,
    PutsHeadsBeforeSamples,
    RecursWithoutClaim,
    RemembersBesideItsState,
    StepsBesideItsForward,
    WritesToItsState,
)
from zoo.conformance import CHECKS

PADDING = {"padding unfelt", "padded = truncated", "context heard"}
FUTURE = {"future unseen", "future unseen, fp32"}

LIES = {
    LeaksThroughAMaximum: ("future unseen", FUTURE),
    MasksValuesOnly: ("padding unfelt", PADDING),
    ScalesByTheBatch: ("batch-mates unfelt", PADDING | FUTURE),
    QuadraticButLinear: ("linear FLOPs", set()),
    DetachesItsQueries: ("parameters learn", {"gradients"}),
    HidesALoss: ("losses as declared", {"padding unfelt"}),
    # Whatever compares two calls finds them different.
    DropsInEvaluation: ("evaluation repeats", {check.name for check in CHECKS}),
    IgnoresTheContext: ("context heard", set()),
    CountsItsCalls: ("pure forward", set()),
    OverflowsWhenLoud: ("loud inputs", FUTURE | PADDING),
    TakesAForeignContext: ("context refused", set()),
    HearsItselfOnly: ("past heard", set()),
    # Training gives something else at every call: nothing is needed to move what it gives.
    DrawsFromNowhere: (
        "one seed, one result",
        FUTURE | {"padding unfelt", "batch-mates unfelt", "gradients"},
    ),
    HidesAWeight: ("state round trip", set()),
    StepsBesideItsForward: ("step = forward", set()),
    KeepsEveryKey: ("state is fixed", set()),
    WritesToItsState: ("pure step", set()),
    RemembersBesideItsState: ("pure step", set()),
    PutsHeadsBeforeSamples: ("pure step", set()),
    RecursWithoutClaim: ("recurrence refused", set()),
    MasksInEvaluationOnly: (
        "padding unfelt",
        {"padded = truncated", "training = evaluation", "future unseen"},
    ),
    MasksInDoublePrecisionOnly: ("padding unfelt", {"padded = truncated"}),
    LosesOverPadding: ("padding unfelt", set()),
    ScalesByTheBatchInTraining: ("batch-mates unfelt", PADDING | FUTURE),
    QuadraticInItsSize: ("linear FLOPs", set()),
    CachesBeforehand: ("state is fixed", set()),
    CountsTheFuture: ("future unseen", set()),
    HearsTheFirstTokenOnly: ("past heard", PADDING | {"order felt"}),
    TurnsItsGradients: ("gradients", set()),
    LogsItsCalls: ("pure forward", set()),
    TurnsByThePaddedPlace: ("padded = truncated", {"step = forward"}),
    CutsOffNothing: ("lengths", set()),
    WidensHalfPrecision: ("precisions", set()),
    DividesByNothing: ("all padded", set()),
    SubtractsTheFuture: ("future unseen, fp32", set()),
    StandsNowhere: ("order felt", set()),
    BuildsWhatItDoesNotClaim: ("causality refused", set()),
    LouderInTraining: ("training = evaluation", set()),
    BranchesOnItsInput: ("compiles", set()),
    AnswersOtherwiseWhenCompiled: ("compiles", set()),
    WritesIntoOneBlank: ("vmap", set()),
    MasksEveryPair: ("linear memory", set()),
}
"""Which check is meant for each lie, and which others cannot but stumble over it."""
