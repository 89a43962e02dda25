"""`harness report`: write pages from the records of a store."""

import warnings
from pathlib import Path

from harness.arguments import names_in
from harness.cli.process import Answer


def report(
    out: Path | None = None, baselines: bool = False, suite: list[str] | None = None,
    with_published: bool | None = None, attention: list[str] | None = None, questions: str = "",
    compare: list[str] | None = None, latex: bool = False, curves: bool = False,
    task: list[str] | None = None, tensorboard: Path | None = None, store: Path = Path("runs"),
    as_json: bool = False,
) -> Answer:  # fmt: skip
    """Write a page of each suite, the leaderboard, and the pages of tuning and costs.

    Args:
        out: Folder of the pages; by default the store itself.
        baselines: First fit the baselines of tasks that lack them.
        suite: Show these suites alone: NAME or FILE.toml, repeatable; by default all in the store.
        with_published: Add the published runs to each suite; by default where --suite names one.
        attention: Show these variants alone: A, A+B, or A,A+B,...; by default all.
        questions: Show these questions of suites alone, separated by commas; by default all.
        compare: Print how two variants A,B differ; repeatable; no file is written.
        latex: Write the matrix of each suite for LaTeX, too.
        curves: Draw loss and score on dev against steps and seconds, too.
        task: Of the curves: TASK or TASK,TASK,...; by default all.
        tensorboard: Folder for the curves as event files of TensorBoard.
        store: Folder of records, a JSON file a run.
        as_json: Print one JSON document; progress goes to stderr.
    """
    from harness import api
    from reports import cost, leaderboard
    from reports.pages.suite import terminal
    from reports.text import without_nan

    complete = True
    api.require_folder(store)
    chosen = api.selection(
        suite or (), published=with_published, attentions=attention or (),
        questions=names_in([questions]) if questions else (),
    )  # fmt: skip
    content = api.content(store, curves=curves or tensorboard is not None)
    if baselines:
        from harness.cli.progress import shown

        complete = api.fit_baselines(content.records, store, shown())
    api.require_records(content, store)
    found = api.results_in(content, chosen, store)
    if compare:
        compared, text = api.comparison(compare, found)
        return Answer(compared.to_dict("records") if as_json else text)
    folder, code = out or store, int(not complete)
    files = api.write_report(
        found, folder, latex=latex, curves=curves, tensorboard=tensorboard,
        tasks=names_in(task or []), attentions=names_in(attention or []),
    )  # fmt: skip
    for path in () if suite else sorted(folder.glob("*-answers.csv")):
        if path not in files:
            name = path.name.removesuffix("-answers.csv")
            warnings.warn(f"pages of {name} in {folder} are of an earlier report", stacklevel=2)
    costs = found.content.costs
    if as_json:
        rows = without_nan(leaderboard.table(found.leaderboard)).to_dict("records")
        answers = [line for of in found.suites for line in of.answers.to_dict("records")]
        document = {"answers": answers, "rows": rows, "costs": cost.lines(costs), "files": files}
        return Answer(document, code, files)
    tables = [*map(terminal, found.suites)]
    if len(found.leaderboard.rows) or (costs.empty and not tables):
        tables.append(leaderboard.terminal(found.leaderboard))
    return Answer("\n" + "\n\n".join(tables or [cost.terminal(costs)]), code, files)
