"""`harness advise --measure` on a tiny suite; `test_cli` has what it rejects."""

import json
import re
import sys
from contextlib import redirect_stdout, suppress
from types import SimpleNamespace

import pytest

from harness.cli import main
from harness.cli.stores import content
from harness.records.store import Store
from tests.harness.test_suites import SUITE
from tests.reports.conftest import make_record

ASKED = ("advise", "--length", "16", "--pass", "train", "--needs", "easy")


def run_here(command, **_):
    """Run the command in this process, not in another one."""
    with redirect_stdout(sys.stderr), suppress(SystemExit):
        main(command[3:])


@pytest.mark.slow
def test_what_is_missing_is_measured_and_then_known(
    call, store, outcomes, unmeasured, tmp_path, monkeypatch
):
    file, row = tmp_path / "mine.toml", '{ attention = "primal", options.primal.rank = 4 }'
    suite = SUITE.replace("lengths = [64]", "lengths = [16]").partition("[questions.hard]")[0]
    file.write_text(re.sub(r"rows = \[.*?\n\]", f"rows = [{row}]", suite, flags=re.DOTALL))
    argv = (*ASKED, "--suite", str(file), "--store", str(store.folder), "--json")
    published = Store(tmp_path / "published")
    published.write(make_record("softmax"))
    monkeypatch.setattr("harness.cli.stores.PUBLISHED", published.folder)
    monkeypatch.setattr("harness.cli.advise.subprocess", SimpleNamespace(run=run_here))
    before = json.loads(call(*argv)[1])
    assert before["run"] == f"harness run --suite {file} --questions easy"
    assert "--set primal.rank=4" in before["commands"][0]
    code, out, _ = call(*argv, "--measure")
    after = json.loads(out)
    assert code == 0
    assert not after["commands"]
    assert len([*store.folder.glob("mqar-*.json")]) == 4
    assert "not run" not in after["excluded"] and "not measured" not in after["excluded"]


def test_a_run_that_two_stores_hold_counts_once(tmp_path):
    folders = [tmp_path / name for name in ("published", "copy")]
    for folder in folders:
        Store(folder).write(make_record("softmax"))
    assert len(content(*folders).records) == len(content(*folders).runs) == 1
