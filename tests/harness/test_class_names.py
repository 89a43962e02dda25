"""A class is called MODULE:CLASS by every command and function."""

import sys

import pytest

from harness import rows
from harness.arguments import rows_in, settings_of, tasks_in
from zoo.registry import UserError

SOURCE = """
from torch import nn
from tasks.synthetic.recall import MultiQueryRecall as Task
from zoo.variants.none import NoAttention as Base

class Mine(Base):
    pass

class Recall(Task):
    name = "own-recall"

class Plain(nn.Module):
    def forward(self, x):
        return x
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "own_classes.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ZOO_VARIANTS", "TASKS_TASKS"):
        monkeypatch.setenv(name, "")
    yield
    sys.modules.pop("own_classes", None)


def test_names_of_rows_and_tasks_are_those_of_their_classes():
    assert rows_in(["own_classes:Mine[rank=8]", "none+own_classes:Mine", "softmax"]) == [
        "Mine[rank=8]", "none+Mine", "softmax",
    ]  # fmt: skip
    named = tasks_in(["own_classes:Recall", "mqar", "a:b/c.csv"])
    assert named == ["own-recall", "mqar", "a:b/c.csv"]
    texts = ["own_classes:Mine.rank=8", "own_classes:Recall.pairs=2", "a.b:C.x=1:2"]
    assert settings_of(texts) == {
        "Mine": {"rank": "8"}, "own-recall": {"pairs": "2"}, "C": {"x": "1:2"},
    }  # fmt: skip


def test_a_remedy_of_pack_has_the_name_that_was_given(tmp_path):
    command = r"--attention own_classes:Mine --set Mine.rank=8"
    with pytest.raises(UserError, match=command):
        rows.to_pack("laptop", "own_classes:Mine[rank=8]", tmp_path)


@pytest.mark.parametrize("name", ["own_classes:Plain", "own_classes:Nothing", "no_such_module:Foo"])
def test_a_class_that_is_none_is_one_line_with_a_remedy(name, rejected):
    line = rejected("run", "--attention", name, "--task", "mqar", "--seeds", "0")
    assert "plug-in" not in line and "give another MODULE:CLASS" in line
    assert ("run in the folder of no_such_module.py" in line) == name.startswith("no_such_module")
    wrapper = ("traits = zoo.Traits(", "self.inner = Plain(", "return zoo.Attended(", "docs/add_a")
    assert all((part in line) == name.endswith("Plain") for part in wrapper)
