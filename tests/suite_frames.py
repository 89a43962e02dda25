"""A made suite: frames of runs, baselines and costs whose numbers are drawn from a seed."""

import json
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from harness.recipes import declared
from harness.records.answers import CorrectAnswers
from harness.records.frame import costs
from harness.records.suites import Suite, find
from tests.conftest import ROOT

ANSWERS, SEED = 400, 7
"""Answers of a run; and the seed, with which some rows answer both recall and parity."""

ROWS = {
    "softmax", "primal", "primal-moments", "softmax+primal", "linear", "cosformer", "cosine",
    "performer", "flowformer", "retention", "gated-linear", "nystrom", "linformer", "soft", "yoso",
    "reformer", "longformer", "local", "conv", "none",
}  # fmt: skip
"""Rows of `laptop` that are measured in the published records."""


@cache
def suite_frames() -> tuple[Suite, pd.DataFrame, pd.DataFrame]:
    """`ROWS` of `laptop`, their runs, some below the baseline, missing or failed; baselines."""
    suite, generator = find("laptop"), np.random.default_rng(SEED)
    rows = tuple(row for row in suite.rows if row.label in ROWS)
    suite = suite.model_copy(update={"rows": rows})
    runs, baselines = [], []
    for column, question in enumerate(suite.questions):
        common = {"suite": suite.key, "question": question.name, "data": question.name}
        baselines.append({"data": question.name, "name": "most frequent", "score": 30.0})
        for place, row in enumerate(suite.rows):
            if (place + column) % 9 == 8:
                continue
            failed = (place, column) == (1, 0)
            level = generator.choice([0.25, 0.5, 0.7, 0.9, 0.99])
            for seed in question.seeds[: 1 if place == 2 else None]:
                share = float(np.clip(level + generator.normal(0, 0.02), 0, 1))
                correct = generator.random(ANSWERS) < share
                runs.append({
                    **common, "row": row.label, "attention": row.attention, "seed": seed,
                    "status": "failed" if failed else "ok", "score": 100 * float(correct.mean()),
                    "sample": CorrectAnswers.pack(correct.tolist(), [1] * ANSWERS),
                    "baseline": row.attention in ("none", "conv"), "train.lr": 1e-3,
                    "grid": json.dumps({"train.lr": question.rates}), "point": "", "role": "final",
                    "declared": declared(suite)[question.name], "overrides": "{}", "values": "{}",
                    "metric": "accuracy", "unit": "%", "better": "higher", "digits": 1,
                    "scale": 100.0, "exponential": False, "dev_better": "higher", "device": "cpu",
                    "version": "code 1", "outdated": False, "commit": "", "known_failures": 0,
                    "started": "2026-11-25T00:00:00Z", "state_bytes": 1024.0, "parameters": 5e4,
                    "groups": {}, "probes": {}, "train.steps": 600, "evaluations": [],
                })  # fmt: skip
    return suite, pd.DataFrame(runs), pd.DataFrame(baselines)


@cache
def published_costs() -> pd.DataFrame:
    return costs(ROOT / "results")


def random_query(generator: np.random.Generator, questions: list[str]) -> dict[str, Any]:
    """A query of any length, also of one that is not measured."""
    return {
        "needs": [name for name in questions if generator.random() < 0.2],
        "length": int(2 ** generator.uniform(7.8, 14.6)),
        "pass": str(generator.choice(["train", "prefill", "decode"])),
        "memory": None if generator.random() < 0.3 else float(2 ** generator.uniform(18, 32)),
    }
