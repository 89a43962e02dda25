"""The page of a reproduced table of accuracies as Markdown."""

from reports.markdown import escape, table
from reports.tables.columns import ONE_RUN, PARTIAL
from reports.tables.reproduced_accuracy import CELLS, Results, cells, mean_cells

HEAD = """\
# Chen et al. 2023 (arXiv 2305.19798), Table {table}: {subject}

Test accuracy of runs of budget `{budget}`, with its 95 % interval over seeds and test examples.
*Published is* `within`, `above` or `below` this interval. {one_run}: one seed, whose interval is of
the test examples alone. {partial}: some runs did not finish.
"""

SUBJECTS = {"1": "accuracy on UEA time series", "2": "accuracy on the Long Range Arena"}

UNPUBLISHED = """\
Published accuracies belong to budget `paper`: beside those of other recipes they are not shown.
"""

DIFFERENCES = {
    "1": (
        "The published accuracy is the best on test over all epochs. Here an epoch is chosen on "
        "dev, a fifth of the published train split, and test is read once.",
        "The published runs train on all of the published train split.",
    ),
    "2": (
        "The published runs on Text select the checkpoint on their test split. Here it is chosen "
        "on dev, and test is read once.",
        "The published models average padding into the vector that is classified, and may sample "
        "padding as tokens. Here padding is excluded.",
        "The last, incomplete batch of test is not evaluated in the published runs.",
    ),
}
"""How the published runs differ from those here, by table."""


def accuracy_page(results: Results) -> str:
    """The page: every variant on every task whose data are here, and which data are missing."""
    head = HEAD.format(
        table=results.table,
        subject=SUBJECTS[results.table],
        budget=escape(results.budget),
        one_run=ONE_RUN,
        partial=PARTIAL,
    )
    shown = [one for one in results.all if one.task in results.tasks]
    lines = [[escape(cell) for cell in cells(one)] for one in shown]
    parts = [head, *([] if results.budget == "paper" else [UNPUBLISHED]), table(CELLS, lines)]
    if means := results.means():
        parts += [
            "## Means over the tasks that have results\n",
            table(
                ["attention", "tasks", "here (%)", "published (%)"],
                [[escape(cell) for cell in mean_cells(one)] for one in means],
                align_right=True,
            ),
        ]
    parts += ["## How the published runs differ\n"]
    parts += [f"- {escape(sentence)}" for sentence in DIFFERENCES[results.table]]
    if results.missing:
        parts += ["\n## Missing data\n"]
        parts += [f"- {escape(task)}: {escape(how)}" for task, how in results.missing.items()]
    return "\n".join(parts) + "\n"
