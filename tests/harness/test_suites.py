"""Suites: their files, their recipes, and the runs that complete them."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import harness.suite
from harness import recipes
from harness.costs.sweep import Outcome
from harness.engines import Resources
from harness.environment import describe
from harness.first import first, place, placed
from harness.questions import question_of
from harness.records import suites
from harness.records.frame import of_records
from harness.records.spec import unmatched
from harness.records.store import CostStore
from harness.runs import Execution, parameters
from harness.suite import copy_published, specs_of
from reports.first import text
from reports.store import _named
from tests.conftest import ROOT, one_line
from tests.harness.specs import MEASURED, raising
from tests.reports.conftest import changed, make_cost
from zoo.registry import UserError

SUITE = """
title = "Two questions"
version = 3
rows = [
    "softmax", { attention = "primal", options.primal.rank = 8 }, "linformer", "softmax+primal"
]

[cost]
lengths = [64]
passes = ["train"]
precision = "fp32"
dim = 8
heads = 2
batch.train = "1"

[all]
task = "mqar"
precision = "fp32"
positions = "none"
rates = [1e-3, 1e-2]
seeds = [1, 2]
options = { train = 64, dev = 16, test = 16, max_len = 32, vocabulary = 64 }
model = { depth = 2, dim = 16, heads = 2, feed_forward = 16, head = 16, dropout = 0.0, \
attention_dropout = 0.0 }
train = { batch = 4, steps = 2, warmup = 1, betas = [0.9, 0.999], cycle_momentum = false, \
eps = 1e-6, weight_decay = 0.0, evaluations = 1 }

[questions.easy]
title = "easy"
asks = "Recall two pairs."
options = { pairs = 2 }

[questions.hard]
extends = "easy"
asks = "Recall four pairs."
options = { pairs = 4, causal = false }
model = { depth = 1 }
"""


@pytest.fixture
def file(tmp_path):
    def write(old="", new=""):
        (tmp_path / "mine.toml").write_text(SUITE.replace(old, new) if old else SUITE)
        return str(tmp_path / "mine.toml")

    return write


def test_a_question_has_the_fields_of_all_and_of_the_question_that_it_extends(file):
    suite = suites.find(file())
    easy, hard = suite.questions
    assert (suite.key, suite.question("hard")) == ("mine@3", hard)
    assert (easy.model["depth"], easy.rates, easy.title) == (2, (1e-3, 1e-2), "easy")
    assert hard.options == {**easy.options, "pairs": 4, "causal": False}
    assert hard.model == {**easy.model, "depth": 1}
    assert [row.label for row in suite.rows][:2] == ["softmax", "primal[rank=8]"]
    with one_line("--suite names mine@3 twice; rename a file"):
        _named([file(), file()], ())


@pytest.mark.parametrize(("old", "new", "named"), [
    ("model = { depth = 1 }", "model = { depths = 1 }", "depths"),
    ("heads = 2\nbatch", "heads = 3\nbatch", "heads=3"), ('train = "1"', 'train = "one"', "one"),
    ("[questions.easy]", "".join(f"[questions.q{n}]\n" for n in range(600)) + "[questions.easy]",
     "602 questions are over 512"),
    ("version = 3\n", "", "version is missing"), ("asks =", "ask = 1\nasks =", "'ask'"),
    ('extends = "easy"', 'extends = "easier"', "'easier'"),
    ("rates = [1e-3, 1e-2]", "rates = [1e-3, 0.001]", "rates: a value is there twice"),
    ('"linformer",', '"softmax",', "'softmax' is there twice"),
    ("seeds = [1, 2]", "seeds = [0, 1]", "seeds"),
    ("seeds = [1, 2]", "seeds = [1, true]", "is a boolean"),
    ('attention = "primal"', 'attention = "soft"', "soft does not use 'primal'"),
    ('"linformer",', f'"{"(" * 900}none{")" * 900}",', "nests over 32 parentheses"),
    ("version = 3", f"{'a.' * 5000}a = 1", "a key of more than 16 names"),
    ("batch.train =", "batch.decode =", "'train' has no batch"),
    ("version = 3", "version = 3\nfirst = ['eazy']", "'eazy' is no question"),
    (SUITE, "questions = [1]", "each of 'questions' must be a table"),
    ("[all]", "[all]\nrecipe = 'mine.toml/easy'", "'mine.toml/easy', which is itself a question"),
])  # fmt: skip
def test_a_wrong_suite_is_rejected_before_the_first_run(file, rejected, store, old, new, named):
    assert named in rejected("run", "--suite", file(old, new)) and not store.folder.exists()


@pytest.mark.parametrize(("find", "name"), [
    *((suites.find, name) for name in ("lapto", "laptop@1", "nowhere.toml", "sub/laptop.toml")),
    *((recipes.find, name) for name in ("laptop@3/recal", "laptop@7/recall", "/recall")),
])  # fmt: skip
def test_a_suite_or_a_question_that_is_not_there_is_rejected(find, name):
    with pytest.raises(UserError, match=r"laptop|nowhere|recall"):
        find(name)


def test_a_file_that_is_no_record_of_costs_is_rejected_before_the_first_run(file, rejected, store):
    suite = suites.find(file())
    path = CostStore.within(store.folder).path(
        harness.suite.layer_costs(suite, suite.rows[0], "cpu")[0]
    )
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    line = rejected("run", "--suite", file(), "-a", suite.rows[0].attention)
    assert path.name in line and line.endswith("move it away to measure this again")


def test_a_question_with_other_positions_is_one_of_its_own_and_with_another_precision_none():
    assert question_of("recall", "laptop@3/recall").suite == "laptop@3"  # Its rows have no trials
    name, task = "mad@1/fuzzy", "fuzzy-recall"
    usual = question_of(task, name)
    assert (usual.suite, usual.model.positions) == ("", "none")
    other = question_of(task, name, positions="rotary")
    assert other.model.positions == "rotary" and " with positions=rotary" in other.name
    tuned = [question_of(task, name, positions=text, tune=True) for text in ("", "none", "rotary")]
    assert [question.suite for question in tuned] == ["mad@1", "mad@1", ""]
    with one_line("--precision fp32 is not possible", "has bf16; leave it out"):
        question_of(task, name, precision="fp32")


@pytest.mark.slow
def test_a_class_is_a_row_once_its_checks_pass(call, store, file, tmp_path, monkeypatch):
    example = ROOT / "docs" / "examples" / "plugin" / "attention_free.py"
    (tmp_path / "free_copy.py").write_text(example.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ZOO_VARIANTS", "")
    checked = []

    def results_of(checks, *_):
        checked.append(checks)
        return [{"variant": form.label, "group": check.group, "check": check.name, "detail": "",
                 "passed": True, "expected_failure": ""}
                for form, check in checks.pairs]  # fmt: skip

    monkeypatch.setattr("harness.checks.results_of", results_of)
    # A recipe with a rate and one seed: each run of a class of a file is a process.
    name = file("rates = [1e-3, 1e-2]\nseeds = [1, 2]", 'recipe = "smoke"\nseeds = [1]')
    argv = ("--suite", name, "-a", "free_copy:AttentionFree")
    code, out, err = call("run", *argv, "--no-cost")
    assert code == 0 and "AttentionFree: runs are of the SHA-256 of" in out, err
    # It is not causal, as the first question is.
    runs = of_records(store.read()[0])
    assert {*zip(runs["row"], runs["question"], strict=True)} == {("AttentionFree", "hard")}
    # A certificate of the same source is checked once.
    assert call("run", *argv, "--no-cost")[0] == 0 and len(checked) == 1
    assert call("pack", *argv, "--out", str(tmp_path / "out"))[0] == 0
    assert [path.name for path in (tmp_path / "out").rglob("*.jsonl")] == ["AttentionFree.jsonl"]


def test_checks_seeds_and_matched_models_are_as_the_options_say(
    call, rejected, store, file, monkeypatch
):
    found = []
    monkeypatch.setattr("harness.suite._require_certificates", raising(UserError("it fails")))
    monkeypatch.setattr(
        "harness.suite._train",
        lambda question, rows, how: not found.append((question.seeds, [of[0].row for of in rows])),
    )
    argv = ["run", "--suite", file(), "--no-cost", "--questions", "easy", "-a"]
    seeds, labels = suites.find(file()).question("easy").seeds, ["softmax", "primal[rank=8]"]
    assert rejected(*argv, "softmax") == "harness: it fails" and not found
    argv = [*argv, "softmax,primal", "--no-checks"]
    assert call(*argv, "--seeds", str(seeds[-1]))[0] == call(*argv)[0] == 0
    assert call(*argv, "--match", "parameters")[0] == 0
    matched = ["softmax[match=parameters]", "primal[match=parameters,rank=8]"]
    assert found == [(seeds[-1:], labels), (seeds, labels), (seeds, matched)]
    assert "seed of these questions" in rejected(*argv, "--seeds", "77")
    # 1.6 % more parameters.
    line = rejected(*argv, "--match", "parameters", "--set", "primal.rank=16")
    assert "--match parameters: primal on mqar" in line and not store.read()[0]


@pytest.mark.parametrize(("row", "label"), [
    ("delta", "delta[match=parameters]"), ("primal[rank=8]", "primal[match=parameters,rank=8]"),
])  # fmt: skip
def test_a_matched_row_has_the_parameters_of_softmax_and_a_label_of_its_own(file, row, label):
    suite = suites.find(file('"linformer"', '"delta"'))
    easy = suite.questions[0].model_copy(update={"rotary": ("delta", "primal")})
    rows = [of for of in suite.rows if of.label in (row, "softmax")]
    softmax, plain = (of[0] for of in specs_of(suite, easy, rows, "cpu"))
    _, (matched, other) = specs_of(suite, easy, rows, "cpu", "parameters")
    assert parameters(matched) == pytest.approx(parameters(softmax), rel=0.01)
    assert parameters(plain) != parameters(softmax)
    assert (matched.row, unmatched(matched.row), plain.row) == (label, row, row)
    of = matched.question
    assert (of.suite, of.name, of.declared) == (suite.key, "easy", plain.question.declared)
    assert {matched.train.lr, other.train.lr} == {1e-3, 1e-2}
    assert matched.model.positions == plain.model.positions == "rotary"


def test_the_place_of_a_row_is_that_among_the_other_published_rows(monkeypatch):
    answers = pd.DataFrame(
        [
            ("softmax", 90.0, "rule", 5.0, 1e-3, "not-installed 0", True),
            ("primal", 10.0, "rule", 5.0, 1e-2, "primal 0, training loop 1", False),
            ("linear", 50.0, "rule", 5.0, 1e-3, "linear 1, training loop 1", True),
            ("none", 4.0, "", float("nan"), 1e-3, "", False),
        ],
        columns=["row", "mean", "baseline", "baseline_value", "rate", "version",
                 "answered"],
    ).assign(question="easy", interval="[1, 2]", seeds=2)  # fmt: skip
    asked = {"title": "Easy", "asks": "Do it.", "score": 30.0, "interval": "[28, 32]"}
    # A row of one seed has a place only where none has more.
    one = answers[:1].assign(row="fox", seeds=1)
    found = placed(asked, "primal", "easy", pd.concat([answers, one]))
    alone = placed(asked, "primal", "easy", answers.assign(seeds=1))
    assert alone["others"] == found["others"]
    assert (found["place"], found["of"], found["published"]) == (3, 4, 10.0)
    assert [(other["place"], other["row"]) for other in found["others"]] == [
        (1, "softmax"), (2, "linear"), (4, "none")
    ]  # fmt: skip
    assert found["baseline"] == ("rule", 5.0) and found["outdated"] == ["primal", "none"]
    document = {"row": "primal", "attention": "primal", "suite": "laptop", "layers": {},
                "device": "a CPU"}  # fmt: skip
    page = text(document | {"questions": [found]}, "here")
    assert "recorded results of other code: 2 variants" in page
    assert "[28, 32], 1 seed; recorded mean: 10.0" in page and "3 of 4" in page
    # Rows that are left out are counted.
    rows = [{"place": n, "row": f"row-{n}", "mean": 9.0, "interval": ""} for n in (1, 2, 3, 4, 6)]
    far = text(document | {"questions": [found | {"others": rows, "place": 5, "of": 6}]}, "here")
    assert "... 2 more" in far and "row-3" not in far and "row-4" in far and "more" not in page
    # Without a row above a baseline there is no place.
    at_chance = placed(asked, "primal", "easy", answers.assign(answered=False))
    assert "3 of 4" not in text(document | {"questions": [at_chance]}, "here")


def test_a_variant_without_the_form_of_a_question_is_not_placed(file):
    question = suites.find(file()).questions[0]
    lacking = place("soft", question, pd.DataFrame(columns=["row", "question"]), pd.DataFrame())
    assert lacking["score"] is None and not lacking["failed"]
    run = {"row": "soft", "question": "easy", "status": "diverged", "reason": "loss is nan"}
    assert place("soft", question, pd.DataFrame([run]), pd.DataFrame())["failed"]


def test_the_first_command_trains_at_the_published_rate_and_measures_each_form(
    store, file, outcomes, monkeypatch, caplog
):
    def measure(spec, *_, **__):
        of = MEASURED.model_copy(update={"memory_ratio": 7.0 if spec.causal else 3.0})
        return Outcome("ok", "", of)

    caplog.set_level("INFO", "harness")
    published = {"row": "primal[rank=8]", "question": "easy", "mean": 1.0, "rate": 1e-4}
    answers = pd.DataFrame([published | {"version": "", "interval": "", "answered": True}])
    answers = answers.assign(baseline="", baseline_value=float("nan"), seeds=3)
    monkeypatch.setattr("harness.records.suites.published", lambda suite: answers)
    monkeypatch.setattr("harness.costs.sweep.measure_in_process", measure)
    name = file("version = 3", 'version = 3\nfirst = ["easy", "hard"]')
    how = Execution(store=store.folder, resources=Resources(workers=1, threads=1))
    found = first(["primal", "linformer"], how, [name])
    runs = of_records(store.read()[0]).set_index(["row", "question"])
    # Without a published rate it is the recipe's, the higher one of two.
    assert runs["train.lr"].to_dict() == {
        ("primal[rank=8]", "easy"): 1e-4, ("primal[rank=8]", "hard"): 1e-2,
        ("linformer", "hard"): 1e-2,
    }  # fmt: skip
    # Without trials it is no result of the suite.
    assert [*runs["role"]].count("final") == 1 and runs["role"]["primal[rank=8]", "easy"] == "final"
    assert {*runs["seed"]} == {1}
    assert not any(of["failed"] for row in found["rows"] for of in row["questions"])
    stages = [line for line in caplog.messages if "cost of a layer" in line]
    # Of both forms of primal, and of the only one of linformer.
    assert len(stages) == 9 and stages[0].endswith(", 4,096 tokens (1 of 6)")
    layers = {form: [(line["tokens"], line["memory_ratio"]) for line in lines]
              for form, lines in found["rows"][0]["layers"].items()}  # fmt: skip
    forms = {"causal": 7.0, "bidirectional": 3.0}
    assert layers == {form: [(n, of) for n in (256, 1024, 4096)] for form, of in forms.items()}
    printed = [*text(found["rows"][0], "").splitlines(), *text(found["rows"][1], "").splitlines()]
    lines = {line.split()[1]: line for line in printed if line.startswith("memory")}
    assert " 7.0" in lines["causal,"] and " 3.0" in lines["bidirectional,"] and len(printed) <= 50
    (row,) = first(["primal"], replace(how, cost=False), [name])["rows"]
    assert row["layers"] == {} and len(row["questions"]) == 2


def test_the_first_command_asks_a_suite_with_a_question_of_the_form(store, file, outcomes):
    path = Path(file("version = 3", 'version = 3\nfirst = ["hard"]'))
    other = path.with_name("other.toml")
    other.write_text(path.read_text().replace('["hard"]', '["easy"]'))
    how = Execution(store=store.folder, resources=Resources(workers=1, threads=1), cost=False)
    for name, suite, pairs in (("primal", path, "four"), ("fox", other, "two")):
        (row,) = first([name], how, [str(path), str(other)])["rows"]
        (question,) = row["questions"]
        assert (row["suite"], question["asks"]) == (str(suite), f"Recall {pairs} pairs.")
        assert question["score"] is not None


def test_a_variant_without_a_task_is_the_first_command(call, monkeypatch):
    found = {"machine": "here", "rows": []}
    monkeypatch.setattr("harness.first.first", lambda names, how: found)
    options = ("--no-cost", "--threads", "1", "--rerun")
    code, out, err = call("run", "--attention", "primal", "--json", *options)
    assert (code, json.loads(out), err) == (0, found, "")


def test_published_costs_of_softmax_of_this_pytorch_are_copied(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.stores.PUBLISHED", tmp_path / "published")
    published, own = (CostStore.within(tmp_path / name) for name in ("published", "own"))
    here = describe("cpu").versions["torch"]
    given = (("softmax", 64, here), ("softmax", 128, "0.1"), ("linear", 64, here))
    records = [changed(make_cost(name, length), "environment", versions={"torch": torch})
               for name, length, torch in given]  # fmt: skip
    for record in records:
        published.write(record)
    copy_published([record.spec for record in records], tmp_path / "own")
    assert own.read() == (records[:1], [])


def test_a_suite_measures_both_forms_of_a_layer_that_has_both():
    suite, names = suites.find("laptop"), ("hgrn2", "delta", "linformer", "softmax")
    rows = [row for row in suite.rows if row.attention in names]
    specs = [of for row in rows for of in harness.suite.layer_costs(suite, row, "cpu")]
    planned = {
        name: {(s.operation, s.causal, s.length) for s in specs if s.attention == name}
        for name in names
    }
    train = {causal: {("train", causal, n) for n in suite.cost.lengths} for causal in (True, False)}
    others = {(name, True, n) for name in ("prefill", "decode") for n in suite.cost.lengths}
    assert planned["hgrn2"] == train[True] | train[False] | others
    assert planned["delta"] == train[True] | others and planned["linformer"] == train[False]
    # Softmax is measured with both backends; the faster one is the reference.
    measured = [spec.options["softmax"] for spec in specs if spec.attention == "softmax"]
    of_plain = {options["backend"] for options in measured if "gate" not in options}
    assert of_plain == {"sdpa", "naive"}
    # Every question gives `nystrom` 16 landmarks; only softmax is measured with its reference.
    of_nystrom = harness.suite.layer_costs(suite, suites.SuiteRow(attention="nystrom"), "cpu")
    assert {str(spec.options) for spec in of_nystrom} == {"{'nystrom': {'landmarks': 16}}"}
    # The cost of a composition is the mean over its layers.
    row = suites.SuiteRow(attention="taylor+local")
    both = [row, suites.SuiteRow(attention="local")]
    alone, *others = (
        sorted(spec.shape for spec in harness.suite.costs_of_rows(suite, rows, "cpu"))
        for rows in ([row], both, [suites.SuiteRow(attention="taylor"), both[1]])
    )
    assert alone and others == [alone] * 2


def test_a_row_of_a_question_has_its_positions_and_ends_at_its_ceiling(file, unread):
    seeds = "seeds = [1, 2]\n"
    suite = suites.find(file(seeds, f'{seeds}ceiling = 99.0\nrotary = ["softmax"]\n'))
    found = [spec for of in specs_of(suite, suite.questions[0], suite.rows, "cpu") for spec in of]
    assert {spec.model.positions for spec in found if spec.row == "softmax"} == {"rotary"}
    assert {spec.model.positions for spec in found if spec.row != "softmax"} == {"none"}
    assert {spec.train.stop_at for spec in found} == {99.0}
    assert len({spec.question.id for spec in found}) == 1
