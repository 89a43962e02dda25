"""The functions of the package: typed, without the command line."""

import pytest

import harness
from tests.harness.conftest import TREES
from zoo.registry import UserError


def test_typed_values_and_the_texts_of_a_command_make_the_same_runs(output, store):
    found = harness.run(
        ["softmax", "primal"], "listops", seeds=[0, 1], budget="smoke", device="cpu", cost=False,
        store=store.folder, listops=TREES, train={"steps": 2, "warmup": 0}, primal={"rank": 3},
    )  # fmt: skip
    assert found["row"].tolist() == ["softmax", "softmax", "primal[rank=3]", "primal[rank=3]"]
    assert found["question.id"].nunique() == 1 and found["id"].nunique() == 4
    texts = [f"listops.{name}={value}" for name, value in TREES.items()]
    texts += ["train.steps=2", "train.warmup=0", "primal.rank=3"]
    out = output(
        "run", "-a", "softmax,primal", "-t", "listops", "--seeds", "0,1", "--budget", "smoke",
        "--device", "cpu", "--no-cost", *(part for text in texts for part in ("--set", text)),
    )  # fmt: skip
    assert out.count("already present") == 4


def test_costs_are_measured_from_python(tmp_path, outcomes):
    found = harness.cost("primal", [64, 128], passes=["train", "forward"], dim=16, store=tmp_path)
    ours = found[found["attention"] == "primal"]
    assert sorted(zip(ours["pass"], ours["length"], strict=True)) == [
        ("forward", 64), ("forward", 128), ("train", 64), ("train", 128),
    ]  # fmt: skip
    assert {*found["dim"]} == {16} and {*found["status"]} == {"ok"}


def test_a_variant_and_a_task_are_checked_from_python():
    found = harness.check("linear", only=["token mixing"])
    assert {*found["variant"]} == {"linear", "linear, causal"} and found["passed"].all()
    assert harness.check("copying", only=["seed"], count=4)["passed"].tolist() == [True]
    with pytest.raises(UserError, match=r"^only=\[\] names no check; name one, or leave"):
        harness.check("linear", only=[])
