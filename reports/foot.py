"""The foot of a leaderboard: what the numbers mean, whose they are, and where they come from."""

from collections.abc import Iterator, Sequence

from harness.records.record import Environment, Record
from harness.records.store import Broken
from reports.cells import GAP, ONE_RUN, PAPER, PARTIAL
from reports.papers import published

MEANING = f"""\
## What the numbers mean

- Time is of the very step that trained: extra losses and optimiser included, evaluation not.
- Peak memory is the most that one training step allocated beyond what was held before it.
- Ratios are to SDPA softmax, measured in turns in the same run; below 1 is faster or smaller.
  Where the memory held the model but not softmax beside it, there is none.
- Inference counts padding as tokens; FLOPs are those of the matrix products of one training step.
- Test was read once, at the checkpoint that was best on dev.
- Costs are medians over seeds; the CSV holds their quartiles and every digit.
- An interval holds 95 %: Student's t over seeds.
- {ONE_RUN} One seed: Wilson's interval over the test examples. It holds the sampling of the test
  set only, and says nothing of what another seed would give.
- {PARTIAL} Some runs did not finish: mean and interval are of those that did, and may flatter.
- Rows in italics are floors: accuracies that need no attention. A bag of tokens is a linear model
  of how often each token occurs, the first tokens one of which tokens stand there; the commonest in
  context is the answer that an example itself shows most often.
"""

PAPER_NOTE = f"""\
## {PAPER} Numbers from the paper

Measured by others, on other hardware: {{sources}}. They stand beside ours for orientation, and are
part of no mean, interval, ratio or order here. The options of a row and the positions of a board
may differ from the paper's. Known weaknesses of those runs:

"""

_LRA = """\
- Long Range Arena: Text chooses its checkpoint on the test set; padding enters the pooled vector,
  and sampled tokens may be padding; no seed is set; the last incomplete test batch is dropped; the
  softmax that was timed is hand-written, fp32 and gradient-checkpointed while its rivals are not;
  evaluation is inside the timed loop; the Performer baseline scales queries and keys twice.
"""

_CHEN = "Chen et al. 2023 (arXiv 2305.19798), "

WEAKNESSES = {
    f"{_CHEN}Table 1": "- UEA: the accuracy is the best that any epoch reached on the test set.\n",
    f"{_CHEN}Table 2": _LRA,
    f"{_CHEN}Table 3": _LRA,
}
"""What is known of the runs behind a table, by its place."""


def foot(records: Sequence[Record], broken: Sequence[Broken]) -> Iterator[str]:
    """The parts of the foot that there is something to say in, in order."""
    if records:
        yield MEANING
    quoted = {
        number
        for record in records
        for number in published(record.spec.task.key, record.spec.attention).values()
    }
    if quoted:
        sources = "; ".join(sorted({number.place for number in quoted}))
        weaknesses = sorted({WEAKNESSES.get(number.place, "") for number in quoted})
        yield PAPER_NOTE.format(sources=sources) + "".join(weaknesses)
    expected_failures = {
        f"- {name}: {why}\n" for record in records for name, why in record.expected_failures.items()
    }
    if expected_failures:
        yield f"## {GAP} Checks that a variant fails, and says so\n\n" + "".join(
            sorted(expected_failures)
        )
    if records:
        yield "## Where they were measured\n\n" + _environments(records)
    if broken:
        lines = sorted(f"- `{one.path.name}`: {' '.join(one.reason.split())}\n" for one in broken)
        yield "## Files that are no records, and were left out\n\n" + "".join(lines)


def _environments(records: Sequence[Record]) -> str:
    commits: dict[str, set[str]] = {}
    for record in records:
        environment = record.environment
        commits.setdefault(_machine(environment), set()).update(environment.commits)
    lines = (f"- {name}; commit {', '.join(sorted(commits[name]))}\n" for name in sorted(commits))
    return "".join(lines)


def _machine(environment: Environment) -> str:
    versions = ", ".join(f"{name} {of}" for name, of in sorted(environment.versions.items()))
    return (
        f"{environment.device}, {environment.memory_gib:.1f} GiB, {environment.threads} threads; "
        f"{environment.system}; {versions}"
    )
