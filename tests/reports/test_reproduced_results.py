"""A reproduced table of results: where the published number is, means, and the page."""

import csv

import pytest

from reports.figures.reproduced_results import draw
from reports.pages import results_files
from reports.tables.reproduced_results import Results, lines
from tests.reports.test_leaderboard import control


@pytest.fixture
def results(record):
    """One seed of listops with that accuracy, of which 37.3 was published, and others."""

    def make(accuracy, budget="paper", **further):
        runs = [
            record("primal", accuracy=accuracy, budget=budget),
            record("primal", task="image", accuracy=0.5, budget=budget),
            record("softmax", task="image", status="diverged", reason="loss is nan"),
        ]
        given = {"missing": {"retrieval": "run 'harness data import retrieval PATH'"}, **further}
        tasks = {"listops": "listops@1", "image": "image@1"}
        return Results("2", budget, tasks, ("softmax", "primal"), tuple(runs), **given)

    return make


def find(results, task, attention):
    return next(r for r in results.all if (r.data_set, r.attention) == (task, attention))


@pytest.mark.parametrize(
    ("accuracy", "position"),
    # The half-width of 2,000 test examples is 2.1 points; 37.3 is printed for at most 37.35.
    [(0.373, "within"), (0.353, "within"), (0.350, "above"), (0.3945, "within"), (0.3948, "below")],
)
def test_the_published_number_is_within_above_or_below_the_interval(results, accuracy, position):
    assert find(results(accuracy), "listops", "primal").position == position


def test_a_number_as_rounded_in_print_is_within(results):
    # 37.3 is printed for 37.25, too: the end of this interval.
    one = find(results(0.35165), "listops", "primal")
    assert 37.25 < one.row.score.high < 37.3
    assert one.position == "within"


def test_only_the_published_recipe_has_published_numbers(results):
    assert find(results(0.4), "listops", "primal").value == 37.3
    assert find(results(0.4, budget="laptop"), "listops", "primal").value is None
    assert "Published numbers belong to budget" in page_of(results(0.4, budget="laptop"))


def page_of(results):
    return results_files(results)["table2.md"].decode()


def test_the_means_are_over_the_same_tasks(results):
    # 43.0 was published for image.
    assert results(0.4).means() == [("primal", 45.0, pytest.approx((37.3 + 43.0) / 2), 2)]


def test_the_page_has_every_run_its_failures_and_the_missing_data(results):
    page = page_of(results(0.4))
    assert "| listops | softmax | – | – | – | 37.1 | – |" in page
    assert "| image | softmax | – | diverged: loss is nan | – | 38.2 | – |" in page
    assert "| image | primal | 1 | 50.0 [47.8, 52.2]† | – | 43.0 | below |" in page
    assert "- retrieval: run 'harness data import retrieval PATH'" in page
    assert "Missing data" not in page_of(results(0.4, missing={}))


def test_the_seeds_of_a_line_are_those_that_finished_in_order(record):
    failed = record("primal", seed=3, status="diverged", reason="loss is nan")
    runs = (failed, *(record("primal", seed=seed) for seed in (2, 0, 1)))
    made = Results("2", "paper", {"listops": "listops@1"}, ("primal",), runs, {})
    assert lines(made)[0]["seeds"] == "0 1 2"


def test_one_data_set_has_no_mean_and_no_number_of_another_table(record):
    given = {"listops": "listops@1"}, ("primal",), (record("primal"),), {"image": "x"}
    assert Results("2", "paper", *given).means() == []
    assert [Results(t, "paper", *given).shown[0].value for t in ("1", "2")] == [None, 37.3]


def test_the_figure_has_a_panel_for_each_task_and_names_what_is_not_shown(results):
    figure = draw(results(0.4))
    listops, image = figure.axes
    published = [line.get_xdata()[0] for line in listops.lines if line.get_marker() == "D"]
    assert published == [37.1, 37.3]
    assert "softmax: diverged" in image.texts[-1].get_text().replace("\n", " ")


def test_the_csv_has_a_line_for_every_variant_on_every_task(results):
    text = results_files(results(0.4))["table2.csv"].decode()
    found = {
        (line["data_set"], line["attention"]): line for line in csv.DictReader(text.splitlines())
    }
    assert len(found) == 6
    line = found["listops", "primal"]
    assert (line["value"], line["published_is"]) == ("40.0", "below")
    assert line["source"] == "Chen et al. 2023 (arXiv 2305.19798), Table 2"
    assert found["retrieval", "primal"]["value"] == ""
    assert found["retrieval", "primal"]["missing_data"].startswith("run 'harness data import")
    assert found["image", "softmax"]["failures"] == "diverged: loss is nan"


def test_returns_are_shown_beside_the_published_mean_of_the_whole_table(record):
    names = {f"set-{number}": f"control@1[path={number}]" for number in range(3)}
    runs = [
        control("softmax", 0, [level + 20, level - 20] * 6, key=key, budget="paper")
        for level, key in zip((60, 80, 160), names.values(), strict=True)
    ]
    whole = Results("4", "paper", names, ("softmax",), tuple(runs), {})
    # Returns of -20 and 180 are 0 and 100.
    assert [one.ends[0] for one in whole.all] == [pytest.approx(x) for x in (40, 50, 90)]
    assert whole.means() == [("softmax", pytest.approx(60), 72.2, 3)]
    assert Results("4", "paper", names, ("softmax",), tuple(runs), {"more": "x"}).means() == []
    page = results_files(whole)["table4.md"].decode()
    assert "Normalised return on test" in page and "| softmax | 3 | 60.0 | 72.2 |" in page
    assert draw(whole).axes[0].get_xlabel() == "test normalised return"
