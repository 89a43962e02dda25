"""The page of a reproduced table of results as Markdown."""

from reports.markdown import escape, table
from reports.pages.notes import WEAKNESSES
from reports.tables.reproduced_results import CELLS, UNITS, Results, cells, mean_cells
from reports.tables.values import CHOSEN_ON_TEST, ONE_RUN, PARTIAL

HEAD = """\
# {source}: {subject}

{what} on test, of runs of budget `{budget}`, with its 95 % interval over seeds and test examples;
the checkpoint is chosen on dev. *Published is* `within`, `above` or `below` this interval.
{one_run}: one seed, whose interval is of the test examples alone. {partial}: some runs did not
finish. {chosen}: the best of all evaluations on test, which is chosen on test and is not a result.
"""

SUBJECTS = {
    "1": "accuracy on UEA time series",
    "2": "accuracy on the Long Range Arena",
    "4": "returns on D4RL",
}
WHAT = {"%": "Accuracy in percent", "normalised return": "Normalised return"}

UNPUBLISHED = """\
Published numbers belong to budget `paper`: they are not shown beside results of other recipes.
"""


def results_page(results: Results) -> str:
    """The page: every variant on every data set that is present, and which are missing."""
    head = HEAD.format(
        source=results.source,
        subject=SUBJECTS[results.table],
        what=WHAT[UNITS[results.table]],
        budget=escape(results.budget),
        one_run=ONE_RUN,
        partial=PARTIAL,
        chosen=CHOSEN_ON_TEST,
    )
    lines = [[escape(cell) for cell in cells(one)] for one in results.shown]
    parts = [head, *([] if results.budget == "paper" else [UNPUBLISHED]), table(CELLS, lines)]
    if means := results.means():
        parts += [
            "## Means over the data sets that have results\n",
            table(
                ["attention", "data sets", "here", "published"],
                [[escape(cell) for cell in mean_cells(one)] for one in means],
                align_right=True,
            ),
        ]
    parts += [f"## Known weaknesses of the published runs\n\n{WEAKNESSES[results.source]}"]
    if results.missing:
        parts += ["## Missing data\n"]
        parts += [f"- {escape(task)}: {escape(how)}" for task, how in results.missing.items()]
    return "\n".join(parts) + "\n"
