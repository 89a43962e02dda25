import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from harness.records.store import Broken
from reports.cells import number
from reports.leaderboard import brief, files, markdown
from reports.papers import published

ROOT = Path(__file__).parents[2]

MODEL = (
    "Model: depth 2, width 64, heads 2, feed-forward width 128, classifier width 128, dropout 0.1, "
    "attention dropout 0, positions learned."
)


def tables(page):
    """Every board as {first cell: {heading: cell}}, by the heading of its section."""
    found = {}
    for section in page.split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        if cells:
            rows = {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}
            found[section.splitlines()[0]] = rows
    return found


def only(page):
    (table,) = tables(page).values()
    return table


def test_numbers_of_two_seeds_land_in_their_cells(record):
    given = [
        record("primal", seed=n, accuracy=a, seconds=50.0, mib=100.0, key="mqar@1", task="mqar")
        for n, a in enumerate((0.50, 0.54))
    ]
    assert only(markdown(given, []))["primal"] == {
        "attention": "primal",
        "test accuracy (%) [95 % interval]": "52.0 [26.6, 77.4]",
        "dev accuracy (%)": "53.0",
        "seeds": "2",
        "time (s / 1K steps)": "50.0",
        "time (× softmax)": "0.250",
        "peak memory (MiB)": "100",
        "peak memory (× softmax)": "0.250",
        "inference (tokens / s)": "1,280,000",
        "inference time (× softmax)": "0.125",
        "parameters": "123,456",
        "GFLOPs / step": "7.89",
    }


def test_one_seed_is_marked_as_an_interval_over_examples(record):
    page = markdown([record(accuracy=0.5, examples=100)], [])
    assert only(page)["softmax"]["test accuracy (%) [95 % interval]"] == "50.0 [40.4, 59.6]†"
    assert "† One seed: Wilson's interval" in page


def test_a_failed_run_is_a_row_with_its_reason_and_no_number(record):
    failed = record("primal", status="diverged", reason="loss is nan at step 300", measured=False)
    row = only(markdown([record(), failed], []))["primal"]
    assert row["test accuracy (%) [95 % interval]"] == "diverged: loss is nan at step 300"
    assert row["seeds"] == "0 of 1"
    assert row["time (s / 1K steps)"] == row["parameters"] == "not measured"


def test_a_cost_without_softmax_beside_it_says_why(record):
    row = only(markdown([record("primal", softmax=None, seconds=50.0)], []))["primal"]
    assert row["time (s / 1K steps)"] == "50.0"
    ratios = [cell for heading, cell in row.items() if "(× softmax)" in heading]
    assert ratios == ["softmax: out of memory"] * 3


def test_a_cost_measured_before_the_failure_is_shown(record):
    row = only(markdown([record(status="interrupted", seconds=50.0)], []))["softmax"]
    assert row["test accuracy (%) [95 % interval]"] == "interrupted at step 300"
    assert row["time (s / 1K steps)"] == "50.0"


def test_a_partial_row_shows_how_many_finished_and_is_marked(record):
    given = [record(seed=0, accuracy=0.5), record(seed=1, accuracy=0.5)]
    given.append(record(seed=2, status="out_of_memory", reason="CUDA out of memory"))
    row = only(markdown(given, []))["softmax"]
    accuracy = "50.0 [50.0, 50.0]‡; seed 2 CUDA out of memory"
    assert row["test accuracy (%) [95 % interval]"] == accuracy
    assert row["seeds"] == "2 of 3"


def test_floors_are_the_last_rows_in_italics(record):
    table = only(markdown([record(accuracy=0.05)], []))
    assert list(table) == ["softmax", "*majority*", "*chance*"]
    assert table["*majority*"]["test accuracy (%) [95 % interval]"] == "*17.0*"


def test_every_board_has_a_section_that_says_its_recipe(record):
    given = [
        record(),
        record("primal", budget="laptop", device="cpu", machine="Xeon", train={"steps": 500}),
    ]
    page = markdown(given, [])
    assert {name: set(rows) for name, rows in tables(page).items()} == {
        "listops@1, budget `laptop`, cpu: Xeon, 2 threads": {"primal", "*chance*", "*majority*"},
        "listops@1, budget `paper`, cuda: NVIDIA H100": {"softmax", "*chance*", "*majority*"},
    }
    trained = (
        "Training by AdamW: batch 32, steps 500, warm-up steps 1,000, learning rate 0.0001, betas "
        "0.9 and 0.999, eps 1e-06, weight decay 0, readings of dev 10, precision bf16, compiled no."
    )
    assert f"{MODEL} {trained} Test examples: 2,000.\n" in page


def test_the_brief_boards_say_their_recipe_too(record):
    assert f"### listops@1, budget `paper`, cuda: NVIDIA H100\n\n{MODEL} Tr" in brief([record()])


@pytest.mark.parametrize(
    ("change", "how"),
    [
        ({"model": {"positions": "rotary"}}, ("positions learned", "positions rotary")),
        ({"model": {"dropout": 0.0}}, ("dropout 0", "dropout 0.1")),
        ({"train": {"compiled": True, "steps": 7}}, ("steps 5,000, compiled no", "steps 7, comp")),
    ],
)
def test_boards_of_one_title_say_what_tells_them_apart(record, change, how):
    given = [record(), record(**change), record(task="text")]
    for page in (markdown(given, []), brief(given)):
        first, second, other = sorted(line for line in page.splitlines() if "budget" in line)
        title = "# listops@1, budget `paper`, cuda: NVIDIA H100"
        assert f"{title}; {how[0]}" in first and f"{title}; {how[1]}" in second
        assert other.endswith("NVIDIA H100")


def test_published_numbers_have_columns_of_their_own(record):
    row = only(markdown([record("primal", accuracy=0.9, seconds=1.0, mib=2.0)], []))["primal"]
    assert row["paper§: accuracy (%)"] == "37.3"
    assert row["paper§: time (s / 1K steps)"] == "56.5"
    assert row["paper§: peak memory (GB)"] == "0.69"
    assert row["test accuracy (%) [95 % interval]"].startswith("90.0 ")
    assert row["time (s / 1K steps)"] == "1.00"


@pytest.mark.parametrize(
    "task",
    [
        {"task": "mqar", "key": "mqar@1"},
        {"key": "listops@1[max_len=512]"},
        {"key": "listops@2"},
        {"key": "listops@1, blocks of 32 shuffled"},
    ],
    ids=lambda task: task["key"],
)
def test_a_task_that_was_not_published_has_no_paper_columns(record, task):
    assert "paper§" not in markdown([record(**task)], [])


def test_a_variant_that_was_not_published_has_an_empty_paper_cell(record):
    table = only(markdown([record(), record("performer-lib")], []))
    assert table["performer-lib"]["paper§: accuracy (%)"] == "–"
    assert table["softmax"]["paper§: accuracy (%)"] == "37.1"


def test_paper_numbers_beside_another_budget_are_called_another_setting(record):
    warning = "The paper's numbers belong to another setting than budget `laptop`"
    assert warning in markdown([record(budget="laptop")], [])
    assert "another setting" not in markdown([record(budget="paper")], [])


def test_the_foot_names_sources_weaknesses_and_environments(record):
    page = markdown([record(commit="aaa1111"), record(seed=1, commit="bbb2222+")], [])
    assert "Chen et al. 2023 (arXiv 2305.19798), Table 2;" in page
    assert "Text chooses its checkpoint on the test set" in page
    machine = "- NVIDIA H100, 79.6 GiB, 2 threads; Linux x86_64; python 3.12.3, torch 2.13.0"
    assert f"{machine}; commit aaa1111, bbb2222+\n" in page


def test_commits_of_a_run_that_was_gone_on_with_are_named_once_each(record):
    found = [record(commit="aaa1111, bbb2222"), record(seed=1, commit="bbb2222"), record(seed=2)]
    assert "commit aaa1111, abc1234, bbb2222\n" in markdown(found, [])


def test_a_table_of_a_paper_that_nothing_is_known_of_is_quoted_without_a_word(record, monkeypatch):
    number = published("listops@1", "softmax")["%"]._replace(table="Table 9")
    monkeypatch.setattr("reports.foot.published", lambda key, attention: {"%": number})
    page = markdown([record()], [])
    assert f"{number.source}, Table 9. They" in page and "Long Range Arena: Text" not in page


def test_a_file_that_is_no_record_is_named_with_its_reason_and_not_its_folder(record):
    page = markdown([record()], [Broken(Path("/some/where/bad.json"), "final: missing\nfield")])
    assert "- `bad.json`: final: missing field\n" in page
    assert "/some/where" not in page


def test_a_reason_cannot_break_its_table(record):
    page = markdown([record(status="failed", reason="got a|b\nfrom <class 'X'>")], [])
    assert "failed: got a\\|b from &lt;class 'X'>" in page


def test_an_empty_store_gives_a_page_that_says_how_to_fill_it():
    page = markdown([], [Broken(Path("bad.json"), "no JSON")])
    assert "There are no records yet. `harness run` makes one" in page
    assert "- `bad.json`: no JSON" in page


def test_the_page_is_the_same_in_whatever_order_records_come(record):
    given = [record(seed=0), record(seed=1, commit="zzz"), record("primal", accuracy=0.6)]
    assert len({markdown(order, []) for order in permutations(given)}) == 1


def test_the_same_records_make_the_same_bytes(record):
    given = [record(seed=0), record("primal", accuracy=0.6), record("linear", status="failed")]
    first, second = files(given, []), files(given[::-1], [])
    names = ["leaderboard.md", "leaderboard.csv", "accuracy_time.png", "accuracy_time.svg"]
    assert list(first) == names
    for name in names:
        assert first[name] == second[name], name


def test_a_page_needs_neither_torch_nor_matplotlib():
    code = (
        "import sys; from reports.leaderboard import markdown; markdown([], []);"
        "heavy = {'torch', 'matplotlib', 'seaborn', 'scipy.stats'} & set(sys.modules);"
        "print(sorted(heavy))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1234567.8, "1,234,568"), (123.4, "123"), (99.96, "100"), (12.34, "12.3"), (0.01234, "0.0123"),
     (1.0, "1.00"), (0.0, "0.00"), (1e-7, "1e-07")],
)  # fmt: skip
def test_numbers_have_three_significant_digits(value, expected):
    assert number(value) == expected
