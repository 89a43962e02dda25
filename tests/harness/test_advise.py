"""`harness advise --measure` on a tiny suite; `test_cli` has what it rejects."""

import json

import pytest

from tests.conftest import ROOT

SUITE = """
title = "One question"
version = 1
rows = [{ attention = "primal", options.primal.rank = 4 }]
[cost]
lengths = [16]
passes = ["train"]
precision = "fp32"
dim = 8
heads = 2
batch.train = "1"
[questions.recall]
title = "recall"
asks = "Recall two pairs."
task = "mqar"
options = { pairs = 2, max_len = 32, train = 64, dev = 16, test = 16 }
precision = "fp32"
positions = "none"
rates = [1e-3, 1e-2]
seeds = [1]
model = { depth = 1, dim = 8, heads = 2, feed_forward = 8, head = 8, dropout = 0.0, attention_dropout = 0.0 }
[questions.recall.train]
batch = 16
steps = 4
warmup = 1
lr = 1e-3
betas = [0.9, 0.999]
cycle_momentum = false
eps = 1e-6
weight_decay = 0.0
evaluations = 1
"""  # noqa: E501

ASKED = ("advise", "--length", "16", "--pass", "train", "--needs", "recall")


@pytest.mark.slow
def test_what_is_missing_is_measured_and_then_known(call, store, tmp_path, monkeypatch):
    file = tmp_path / "mine.toml"
    file.write_text(SUITE)
    argv = (*ASKED, "--suite", str(file), "--store", str(store.folder), "--json")
    # The tests may run on an installed package, which has no records.
    monkeypatch.setattr("harness.cli.stores.PUBLISHED", ROOT / "results")
    before = json.loads(call(*argv)[1])
    assert f"--suite {file} " in before["commands"][0]
    assert "--set primal.rank=4" in before["commands"][0]
    code, out, _ = call(*argv, "--measure")
    after = json.loads(out)
    assert code == 0
    assert not after["commands"]
    assert len([*store.folder.glob("mqar-*.json")]) == 3
    assert "not run" not in after["excluded"] and "not measured" not in after["excluded"]
