"""The results of a suite in stores: what `advise` and `site` start from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.records.suites import FOLDER
from zoo.registry import UserError

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.record import Record
    from harness.records.suites import Suite
    from reports.prediction import Model

PUBLISHED = Path(__file__).parents[2] / "results"
"""The published records, in a checkout; an installed package has their table alone."""


@dataclass(frozen=True)
class SuiteResults:
    """The records of stores, as frames; see `harness.records.frame`."""

    suite: "Suite"
    records: "Sequence[Record]"
    runs: "pd.DataFrame"
    costs: "pd.DataFrame"
    baselines: "pd.DataFrame"


def table_of(results: SuiteResults, model: "Model | None" = None) -> dict[str, Any]:
    """The table of the advisor for a layer, or for a model; see `reports.advice.table`."""
    from harness.cli.catalogue import described
    from reports import advice, suites
    from reports.prediction import of_model

    suite, plan, costs = results.suite, results.suite.cost, results.costs
    costs = of_model(costs, model, plan.precision) if model else suites.of_plan(costs, plan)
    traits = {entry["name"]: entry for entry in described()["variants"]}
    answers = suites.answers(results.runs, suite, results.baselines)
    seeds = suites.results(results.runs, suite)
    return advice.table(answers, seeds, costs, suite, traits, model, causal_questions(suite))


def causal_questions(suite: "Suite") -> list[str]:
    """The questions of a suite whose models are causal."""
    from harness.cli.catalogue import described

    causal = {entry["name"]: entry["causal"] for entry in described()["tasks"]}
    return [
        question.name
        for question in suite.questions
        if question.options.get("causal", causal.get(question.task))
    ]


def table_path(suite: "Suite") -> Path:
    """The file of the table of the published records, which `harness report --publish` writes."""
    return FOLDER / f"{suite.name}.json"


def published_tables(suites: "Sequence[Suite]", store: Path) -> dict[Path, bytes]:
    """The content of those files, for the records of a store."""
    return {
        table_path(suite): f"{json.dumps(table, separators=(',', ':'), allow_nan=False)}\n".encode()
        for suite in suites
        for table in [table_of(read_results(suite, [store]))]
    }


def stores_of(store: Path | None) -> list[Path]:
    """The folders of the published records, and of a user's.

    Raises:
        UserError: there is none of them.
    """
    found = [folder for folder in (PUBLISHED, store) if folder and folder.is_dir()]
    if not found:
        raise UserError(
            f"there are no records in {store or PUBLISHED}; make records with: harness run --suite "
            "laptop, and give --store"
        )
    return found


def read_results(suite: "Suite", stores: Sequence[Path]) -> SuiteResults:
    """The results of a suite; costs are those of the machines of the last store that has any.

    Raises:
        UserError: the stores have no run.
    """
    import pandas as pd

    from harness.records import frame
    from harness.records.store import Store
    from tasks import BASELINES_VERSION

    records = [record for store in stores for record in Store(store).read()[0]]
    if not records:
        raise UserError(
            f"{', '.join(map(str, stores))} has no run; make some with: harness run --suite "
            f"{suite.name}"
        )
    costs = [found for store in stores if len(found := frame.costs(store))]
    baselines = pd.concat([frame.baselines(store) for store in stores], ignore_index=True)
    current = baselines["complete"] & (baselines["version"] == BASELINES_VERSION)
    every = pd.concat(costs, ignore_index=True) if costs else frame.of_costs([])
    if costs:
        every = every[every["machine"].isin(costs[-1]["machine"])]
    runs = frame.of_records(records)
    return SuiteResults(suite, records, runs, every, baselines[current.astype(bool)])
