"""The notes below a leaderboard: meaning, sources and origin of the numbers."""

from collections.abc import Iterator, Sequence

from harness.records.record import Environment, Record
from harness.records.store import Broken
from reports.markdown import escape
from reports.papers import WEAKNESSES, published
from reports.tables.values import (
    CHOSEN_ON_TEST,
    EXPECTED,
    NO_EVIDENCE,
    ONE_RUN,
    PAPER,
    PARTIAL,
    UNEQUAL,
)

MARKS = {
    ONE_RUN: f"{ONE_RUN} One seed: the interval covers the sampling of the test split alone.",
    NO_EVIDENCE: f"{NO_EVIDENCE} No evidence of attention: not above every baseline.",
    UNEQUAL: f"{UNEQUAL} Parameters differ from those of softmax by more than 10 %.",
    PARTIAL: f"{PARTIAL} Mean and interval of the finished runs alone.",
    CHOSEN_ON_TEST: f"{CHOSEN_ON_TEST} Chosen on test, as some published numbers: no result.",
    EXPECTED: f"{EXPECTED} Known check failures: see `harness check`.",
    PAPER: f"{PAPER} Published by others; `leaderboard.md` names the source.",
}

FAILING_COVERAGE = {2: 42, 3: 62, 5: 82}
"""Percentage of intervals, by the number of seeds, that contain the mean over all seeds where a
seed fails with probability 0.3: the smallest of all kinds of scores in `docs/performance.md`."""

MEANING = f"""\
## What the numbers mean

- Time is that of the training step: auxiliary losses and optimiser included, evaluation excluded.
- Peak memory is the most that one training step allocates in addition to what was allocated
  before it.
- Times are compared with the fastest exact softmax of the same shape, which a trial finds (SDPA or
  the formula, in bf16 or fp32; *fastest softmax* names it), measured alternately in the same run;
  memory with SDPA softmax in the precision of the row. Below 1 is faster or smaller.
- Inference counts padding as tokens; FLOPs are those of the matrix products of one training step.
- The checkpoint is the best on dev; test is evaluated once.
- Costs are medians over seeds; the CSV has their quartiles at full precision.
- Accuracies are means over seeds with 95 % intervals over seeds and test examples; answers to one
  sequence are one example. Where a record does not store its answers, the interval contains both
  Student's t over the seeds and Wilson's interval of the mean over the test examples.
- Of simulated intervals 94 % or more contain the mean where seeds vary about a level. They do not
  cover a failure that none of the seeds shows: where a seed stays at a baseline with probability
  0.3, the mean over all seeds is in {FAILING_COVERAGE[2]} % of intervals of two seeds, in
  {FAILING_COVERAGE[3]} % of three and in {FAILING_COVERAGE[5]} % of five (`docs/performance.md`).
- {MARKS[ONE_RUN]}
- {MARKS[PARTIAL]}
- {MARKS[UNEQUAL]} `--match parameters` compares models of equal size.
- {MARKS[NO_EVIDENCE]} The interval of a row is above the accuracy of every row in italics, and
  the row is separable from models without attention, such as `none`, or it has the mark.
- *tier*: rows that share a tier are ties, and their order means nothing. Two rows that share none
  are separable: they differ on the same test answers, by more than seeds and examples explain. At
  most 5 % of tables separate any two rows that do not differ (Holm's correction over all pairs).
- A row has a tier only if none of its seeds is at a baseline or at a model without attention, with
  five seeds or more if they are not all at the same one: where seeds fail by chance, all of one row
  may fail and none of an equal row. Seeds that reach one of two levels above every baseline are not
  recognised: fewer than five cannot show whether rows differ or were lucky.
- *best* is the probability that a row has the highest accuracy of the rows with a tier; *at
  baseline* counts the seeds whose accuracy is at most that of the strongest baseline.
- Rows in italics are baselines, accuracies without attention: linear models on token counts (*bag
  of tokens*, *n-grams*) and on pixels, boosted trees on the tokens named, or on what the task
  names; *most frequent in context* is the answer that an example itself contains most often, *by
  position* or *rank of the query* the one at the place that was most often correct in train.
"""

LOSSES = """\
- Rows of language models are ordered by bits per byte or perplexity, the base-2 logarithm or the
  exponential of the mean cross-entropy over all test tokens; lower is better, and the checkpoint
  has the lowest loss on dev. Intervals are over seeds and articles of test; *best* and *tier*
  compare losses. The accuracy is that of the most probable next token. Baselines: *unigram*, and
  interpolated Kneser-Ney *n-grams*, n chosen on dev.
"""

BEST_ON_TEST = f"""\
- {CHOSEN_ON_TEST} *best on test* is the mean over seeds of the highest accuracy of all evaluations
  on test. It is chosen on the answers that it counts, and is shown beside published accuracies that
  were chosen so; it selects and orders nothing.
"""

RETURNS = """\
- Rows of control are ordered by the mean normalised return of the test episodes, 100 (return -
  random) / (expert - random) with the returns of a random and an expert policy; higher is better.
  The checkpoint has the lowest mean squared error of actions on dev. Intervals are over seeds and
  episodes, whose first states are the same for all rows.
"""

PAPER_NOTE = f"""\
## {PAPER} Published numbers

Measured by others, on other hardware: {{sources}}. They are shown for comparison, and are part of
no mean, interval, ratio or order here. The options of a row and the positions of a board may differ
from the paper's. Known weaknesses of those runs:

"""


def notes(records: Sequence[Record], broken: Sequence[Broken]) -> Iterator[str]:
    """The sections that the records require, in order."""
    if records:
        yield MEANING
    names = {record.metric.name for record in records if record.final}
    if names & {"bits per byte", "perplexity"}:
        yield LOSSES
    if any(record.final and record.final.best_on_test is not None for record in records):
        yield BEST_ON_TEST
    if "normalised return" in names:
        yield RETURNS
    if shared := sum(record.cost is not None and record.cost.workers > 1 for record in records):
        yield (
            f"- The costs of {shared} of {len(records)} runs were measured while other cells ran "
            "on the machine: their times are higher than those of an idle one. `harness run "
            "--remeasure` replaces them.\n"
        )
    costs = [record.cost for record in records if record.cost]
    if outdated := sum(cost.time_ratio is not None and not cost.reference for cost in costs):
        yield (
            f"- {outdated} of {len(records)} runs have no time ratio: they were measured before "
            "the fastest softmax was the reference. `harness run --remeasure` measures them "
            "again.\n"
        )
    quoted = {
        number
        for record in records
        for number in published(record.spec.task.key, record.spec.attention).values()
    }
    if quoted:
        sources = "; ".join(sorted({number.reference for number in quoted}))
        weaknesses = sorted({WEAKNESSES.get(number.reference, "") for number in quoted})
        yield PAPER_NOTE.format(sources=escape(sources)) + "".join(weaknesses)
    failures = {
        f"- {escape(name)}: {escape(why)}\n"
        for record in records
        for name, why in record.expected_failures.items()
    }
    if failures:
        yield f"## {EXPECTED} Known check failures\n\n" + "".join(sorted(failures))
    if records:
        yield "## Environments\n\n" + _environments(records)
    if broken:
        lines = sorted(f"- {escape(file.path.name)}: {escape(file.reason)}\n" for file in broken)
        yield "## Files that are not records and were left out\n\n" + "".join(lines)


def used_marks(page: str) -> str:
    """The meaning of each mark that occurs in `page`, in one line; empty where none does."""
    return " ".join(note for mark, note in MARKS.items() if mark in page)


def _environments(records: Sequence[Record]) -> str:
    commits: dict[str, set[str]] = {}
    for record in records:
        commits.setdefault(_machine(record.environment), set()).update(record.environment.commits)
    lines = (f"{name}; commit {', '.join(sorted(own))}" for name, own in sorted(commits.items()))
    return "".join(f"- {escape(line)}\n" for line in lines)


def _machine(environment: Environment) -> str:
    versions = ", ".join(map(" ".join, sorted(environment.versions.items())))
    return (
        f"{environment.device}, {environment.memory_gib:.1f} GiB, {environment.threads} threads; "
        f"{environment.system}; {versions}"
    )
