"""`harness cost` on small layers: its records, its page, and what it rejects."""

import json
from itertools import product

import pytest
import torch

import harness
from harness.arguments import lengths_in
from harness.records.store import CostStore
from tests.harness.test_cli import TINY
from zoo.registry import UserError

SMALL = ("cost", "--dim", "16", "--seconds", "0", "--precision", "fp32")

LENGTHS = {
    "256:2048": [256, 512, 1024, 2048], "100:500": [100, 200, 400], "64:64": [64],
    "63,1000": [63, 1000], "1k,4K,1024": [1024, 4096], "256:1k": [256, 512, 1024],
    "1k:2k": [1024, 2048],
}  # fmt: skip
OTHER = "x 0:8 512:256 1:99999999 64: 1,,2 -1 k 1.5k 16m 64-128 1k:x 9999999k"


def test_lengths_double_or_are_listed_and_others_are_rejected_with_an_example():
    assert {text: lengths_in(text) for text in LENGTHS} == LENGTHS
    for text in ("", *OTHER.split()):
        with pytest.raises(UserError, match=r"256:16384 or 1000,2k|empty name"):
            lengths_in(text)


@pytest.mark.filterwarnings("always")
def test_cost_measures_everything_once_and_writes_its_page(call, output, store, outcomes):
    arguments = (*SMALL, "-a", "primal", "--lengths", "32", "--pass", "train,decode")
    out = output(*arguments)
    records, broken = CostStore.within(store.folder).read()
    # Primal, SDPA softmax and softmax by its formula, in two passes.
    assert [record.status for record in records] == ["ok"] * 6 and not broken
    assert {record.environment.device for record in records} == {records[0].spec.machine}
    page = (store.folder / "cost.md").read_text()
    assert "## training, layer" in page and "## decoding, layer" in page
    progress, _, table = out.partition("cost.csv")
    names = ("softmax[backend=naive]", "softmax[backend=sdpa]", "primal")
    assert all(name in progress and name in table for name in names)
    assert output(*arguments).count("(already present)") == 6 and "primal" in output("report")
    (store.folder / "cost" / "other.json").write_text("{}")
    assert "other.json is not a record" in call(*arguments)[2]


@pytest.mark.filterwarnings("always")
def test_a_run_ends_with_costs_of_its_step_which_rerun_repeats(call, output, store, outcomes):
    argv = (*TINY, "-a", "none,softmax", "--seeds", "0,1", "--threads", "1")
    assert call(*argv, "--no-cost")[0] == 0 and not CostStore.within(store.folder).read()[0]
    out = output(*argv)
    records = CostStore.within(store.folder).read()[0]
    kinds = {(record.spec.attention, record.spec.operation) for record in records}
    assert len(records) == 4 and kinds == {*product(("none", "softmax"), ("train", "forward"))}
    assert "none, train, 4 × 24 tokens: 2,000 (2.00×) ms" in out.splitlines()
    (line,) = (line for line in out.splitlines() if line.startswith("none ") and "×" not in line)
    assert line.split()[-3:-1] == ["2.0", "1.0"]
    assert len(harness.load(store.folder)["step_seconds"].dropna()) == 4
    assert call(*argv)[1].count("ms  (already present)") == 4
    torch.set_num_threads(1)  # as the runs had: the costs of other threads are not repeated
    code, out, err = call("cost", "--rerun", "--json", "--device", "cpu")
    assert code == 0 and "already present" not in err and len(json.loads(out)["rows"]) == 4
    outcomes["none"] = "crashed"
    assert call(*argv, "--rerun")[0] == 1


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("options", "label", "causal", "overrides"), [
    ("-a nystrom --set nystrom.landmarks=4", "nystrom[landmarks=4]",
     {"nystrom": False, "softmax": False}, [{"nystrom.landmarks": 4}]),
    # Softmax by name is the row of SDPA.
    ("-a softmax --pass prefill", "softmax[backend=sdpa]", {"softmax": True}, []),
    ("-a delta,linear", "delta", {"delta": True, "linear": False, "softmax": False}, []),
])  # fmt: skip
def test_a_row_has_the_options_that_were_set_and_is_causal_where_it_must_be(
    output, store, outcomes, options, label, causal, overrides
):
    assert label in output(*SMALL, "--lengths", "32", *options.split())
    specs = [record.spec for record in CostStore.within(store.folder).read()[0]]
    assert {spec.attention: spec.causal for spec in specs} == causal
    assert [spec.overrides for spec in specs if spec.overrides] == overrides
    references = [spec.options["softmax"] for spec in specs if spec.attention == "softmax"]
    assert sorted(options["backend"] for options in references) == ["naive", "sdpa"]


@pytest.mark.parametrize(("status", "exit_code"), [("timeout", 0), ("crashed", 1)])
def test_a_crash_is_a_failure_of_the_command_and_a_lack_of_memory_or_time_a_result(
    status, exit_code, call, outcomes
):
    outcomes["none"] = status
    code, out, _ = call(*SMALL, "-a", "none", "--lengths", "32,64")
    assert code == exit_code and f"none at 32 tokens: {status.replace('_', ' ')}: a reason" in out


@pytest.mark.filterwarnings("always")
def test_a_variant_without_a_pass_is_skipped_and_alone_is_rejected(call, rejected, outcomes):
    argv = (*SMALL, "--lengths", "32", "--pass", "decode", "-a")
    code, out, err = call(*argv, "nystrom,none")
    assert code == 0 and "skipped: nystrom, decode: nystrom is not causal" in err
    assert "none, decode" in out and "nystrom, decode" not in out
    assert "nystrom is not causal; causal variants" in rejected(*argv, "nystrom")
