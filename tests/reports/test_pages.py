import subprocess
import sys
from itertools import permutations
from pathlib import Path

from harness.records.store import Broken
from reports.pages import files
from reports.pages.leaderboard import leaderboard

ACCURACY = "test accuracy, % [95 % interval]"


def sections(page):
    """Every table as {first cell: {heading: cell}}, by the heading of its section."""
    tables = {}
    for section in page.split("\n## ")[1:]:
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
        if cells:
            rows = {row[0]: dict(zip(cells[0], row, strict=True)) for row in cells[2:]}
            tables[section.splitlines()[0]] = rows
    return tables


def only(page):
    (table,) = sections(page).values()
    return table


def test_numbers_of_two_seeds_are_in_their_cells(record):
    given = [
        record("primal", seed=n, accuracy=a, seconds=50.0, mib=100.0, key="mqar@1", task="mqar")
        for n, a in enumerate((0.50, 0.54))
    ]
    assert only(leaderboard(given, []))["primal"] == {
        "attention": "primal",
        ACCURACY: "52.0 [26.6, 77.4]",
        "dev accuracy, %": "53.0",
        "seeds": "2",
        "time (s / 1K steps)": "50.0",
        "time (× fastest softmax)": "0.250",
        "fastest softmax": "naive, bf16",
        "peak memory (MiB)": "100",
        "peak memory (× SDPA softmax)": "0.250",
        "inference (tokens / s)": "1,280,000",
        "inference time (× fastest softmax)": "0.125",
        "parameters": "123,456",
        "GFLOPs / step": "7.89",
    }


def test_one_seed_and_known_check_failures_are_marked_and_explained(record):
    given = [record(accuracy=0.5, examples=100, failures={"softmax: causality": "leaks <b>"})]
    page = leaderboard(given, [])
    assert only(page)["softmax¶"][ACCURACY] == "50.0 [40.4, 59.6]†"
    assert "† One seed: the interval covers" in page
    assert "## ¶ Known check failures\n\n- softmax: causality: leaks &lt;b&gt;\n" in page


def test_a_failed_run_is_a_row_with_its_reason_and_no_number(record):
    failed = record("primal", status="diverged", reason="loss is nan at step 300", measured=False)
    row = only(leaderboard([record(), failed], []))["primal"]
    assert row[ACCURACY] == "diverged: loss is nan at step 300"
    assert row["seeds"] == "0 of 1"
    assert row["time (s / 1K steps)"] == row["parameters"] == "not measured"


def test_a_partial_row_is_marked_and_names_its_failures(record):
    given = [record(seed=0, accuracy=0.5), record(seed=1, accuracy=0.5)]
    given.append(record(seed=2, status="out_of_memory", reason="CUDA out of memory"))
    row = only(leaderboard(given, []))["softmax"]
    assert row[ACCURACY] == "50.0 [47.8, 52.2]‡; seed 2 CUDA out of memory"
    assert row["seeds"] == "2 of 3"


def test_a_ratio_without_softmax_names_the_reason(record):
    row = only(leaderboard([record("primal", softmax=None, seconds=50.0)], []))["primal"]
    assert row["time (s / 1K steps)"] == "50.0"
    ratios = [cell for heading, cell in row.items() if "softmax)" in heading]
    assert ratios == ["softmax: out of memory"] * 3


def test_a_ratio_to_sdpa_of_an_old_record_is_not_shown(record):
    page = leaderboard([record("primal", reference=""), record()], [])
    old, new = only(page)["primal"], only(page)["softmax"]
    times = [heading for heading in old if "fastest softmax)" in heading]
    assert [old[heading] for heading in times] == ["not measured"] * 2
    assert [new[heading] for heading in times] == ["0.500", "0.250"]
    assert old["fastest softmax"] == "–" and old["peak memory (× SDPA softmax)"] == "0.750"
    assert "1 of 2 runs have no time ratio" in page


def test_baselines_are_the_last_rows_in_italics(record):
    table = only(leaderboard([record(accuracy=0.05)], []))
    assert list(table) == ["softmax", "*majority*", "*chance*"]
    assert table["*majority*"][ACCURACY] == "*17.0*"


def test_a_section_states_its_recipe(record):
    page = leaderboard([record(budget="laptop", device="cpu", overrides={"train.lr": 1e-4})], [])
    assert list(sections(page)) == [
        "listops@1, budget laptop with train.lr=0.0001, cpu: NVIDIA H100, 2 threads"
    ]
    assert (
        "Model: depth 2, width 64, heads 2, feed-forward width 128, dropout 0.1, attention dropout "
        "0, classifier width 128, positions learned. Training: batch 32, steps 5,000, warm-up "
        "steps 1,000, learning rate 0.0001, betas 0.9 and 0.999, eps 1e-06, weight decay 0, "
        "validation evaluations 10, precision bf16. Test examples: 2,000.\n"
    ) in page


def test_published_numbers_are_columns_of_the_published_task_only(record):
    table = only(leaderboard([record("primal"), record("performer-lib")], []))
    assert table["primal"]["paper§: accuracy (%)"] == "37.3"
    assert table["performer-lib"]["paper§: accuracy (%)"] == "–"
    assert "paper§" not in leaderboard([record(key="listops@1[max_len=512]")], [])
    warning = "The paper's numbers belong to another setting than budget laptop"
    assert warning in leaderboard([record(budget="laptop")], [])
    assert "another setting" not in leaderboard([record(budget="paper")], [])


def test_the_notes_name_sources_environments_and_files_left_out(record):
    given = [record(commit="aaa1111, bbb2222"), record(seed=1, commit="bbb2222"), record(seed=2)]
    page = leaderboard(given, [Broken(Path("/some/where/bad.json"), "final: missing\nfield")])
    assert "Chen et al. 2023 (arXiv 2305.19798), Table 2;" in page
    assert "Text chooses its checkpoint on the test set" in page
    machine = "- NVIDIA H100, 79.6 GiB, 2 threads; Linux x86_64; python 3.12.3, torch 2.13.0"
    assert f"{machine}; commit aaa1111, abc1234, bbb2222\n" in page
    assert "- bad.json: final: missing field\n" in page and "/some/where" not in page


def test_the_notes_count_the_costs_of_a_shared_machine(record):
    alone = record()
    shared = record(seed=1)
    shared = shared.model_copy(update={"cost": shared.cost.model_copy(update={"workers": 2})})
    assert "The costs of 1 of 2 runs were measured while other" in leaderboard([alone, shared], [])
    assert "while other cells ran" not in leaderboard([alone], [])


def test_an_empty_store_gives_a_page_that_names_the_command():
    assert "There are no records yet. `harness run` makes one" in leaderboard([], [])


def test_the_same_records_make_the_same_bytes_in_any_order(record):
    given = [record(seed=0), record("primal", accuracy=0.6), record("linear", status="failed")]
    assert len({leaderboard(order, []) for order in permutations(given)}) == 1
    first, second = files(given, []), files(given[::-1], [])
    assert first == second
    assert list(first) == ["leaderboard.md", "leaderboard.csv"]


def test_a_page_needs_neither_torch_nor_matplotlib():
    code = (
        "import sys; from reports.pages import files; from reports.tables import summary;"
        "print(sorted({'torch', 'matplotlib', 'pandas', 'scipy.stats'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("[]\n", "")
