"""`harness locality`: the cells of an audit, and the page that comes of them."""

import pytest

from harness.budgets import Request
from harness.locality import seen, shuffled
from tasks.registry import tasks


def request(task: str, seed: int = 0, **settings) -> Request:
    return Request(
        attention="primal", task=task, budget="smoke", seed=seed, device="cpu", precision="fp32",
        compiled=False, settings=settings,
    )  # fmt: skip


def test_an_audit_is_both_ends_and_every_window_and_block():
    given = request("listops", seed=3)
    found = [*seen(given, [4, 16]), *shuffled([given], [4, 16])]
    assert [
        (one.attention, one.options.get("local", {}).get("window"), one.task.block) for one in found
    ] == [
        ("softmax", None, 0), ("none", None, 0), ("local", 4, 0), ("local", 16, 0),
        ("softmax", None, 4), ("softmax", None, 16),
    ]  # fmt: skip
    assert {one.seed for one in found} == {3}
    assert len({one.id for one in found}) == len(found)


def test_locality_runs_the_cells_once_and_writes_its_page(call, store, unmeasured):
    argv = ("locality", "majority", "--windows", "4", "--budget", "smoke")
    code, out, _ = call(*argv)
    assert code == 0
    assert [line.rpartition("/")[2] for line in out.splitlines()[-3:]] == [
        "locality.md", "locality.png", "locality.svg",
    ]  # fmt: skip
    assert len(list(store.folder.glob("*.json"))) == 4
    page = (store.folder / "locality.md").read_text("utf-8")
    assert "| 4 |" in page and "| all |" in page
    before = {path: path.stat().st_mtime_ns for path in store.folder.glob("*.json")}
    assert call(*argv)[0] == 0
    assert before == {path: path.stat().st_mtime_ns for path in store.folder.glob("*.json")}


def test_a_window_that_is_no_narrower_than_the_documents_is_left_out_with_a_warning():
    given = request("majority", majority={"max_len": 16})
    line = r"documents of majority@1\[max_len=16,.*\] have at most 16 tokens, and from"
    with pytest.warns(UserWarning, match=rf"window 15 is left out: {line} 15 on it ch") as warned:
        *_, last = seen(given, [14, 15])
    assert len(warned) == 1 and last.options["local"]["window"] == 14
    with pytest.warns(UserWarning, match=rf"block 16 is left out: {line} 16 on it ch") as warned:
        (only,) = shuffled([given], [15, 16])
    assert len(warned) == 1 and only.task.block == 15


@pytest.mark.filterwarnings("always")
def test_an_audit_that_hides_nothing_is_refused_before_any_run(call, store):
    argv = ("locality", "majority", "--windows", "31,32", "--budget", "smoke")
    code, out, err = call(*argv)
    assert (code, out) == (2, "")
    expected = "harness: windows 31, 32 all show the whole of majority@1[max_len=32,"
    assert err.splitlines()[-1].startswith(expected) and "give narrower --windows" in err
    assert not store.folder.exists()


def test_windows_that_are_no_windows_are_refused(call, store):
    for windows in ("4,x", "0", "4,,8"):
        code, out, err = call("locality", "majority", "--windows", windows, "--budget", "smoke")
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    assert not store.folder.exists()


@pytest.mark.parametrize("task", ["copying", "induction", "mqar", "selective-copying"])
def test_a_task_that_asks_at_tokens_is_not_shuffled(task):
    given = [request(task, **{task: {"test": 4}}), request("majority")]
    assert [one.task.name for one in shuffled(given, [4, 16])] == ["majority"] * 2


def test_seeds_of_a_task_are_shuffled_after_one_look_at_it(monkeypatch):
    majority, looks = tasks.find("majority"), []
    load = majority.load

    def look(task, split):
        looks.append(split)
        return load(task, split)

    monkeypatch.setattr(majority, "load", look)
    found = list(shuffled([request("majority", seed) for seed in (0, 1)], [4]))
    assert [one.seed for one in found] == [0, 1]
    assert looks == ["test"]


def test_a_page_says_why_a_task_that_asks_at_tokens_has_one_curve(call, store, unmeasured):
    assert call("locality", "induction", "--windows", "4", "--budget", "smoke")[0] == 0
    page = (store.folder / "locality.md").read_text("utf-8")
    assert "| tokens | sees a window |\n" in page
    assert "No runs with shuffled blocks. A task that asks at tokens has none" in page
    call("locality", "majority", "--windows", "4", "--budget", "smoke")
    page = (store.folder / "locality.md").read_text("utf-8")
    assert page.count("No runs with shuffled blocks") == 1


def test_options_of_the_task_and_of_its_variants_can_be_set():
    settings = {"majority": {"max_len": "40"}, "softmax": {"backend": "sdpa"}}
    given = request("majority", **settings)
    found = [*seen(given, [4]), *shuffled([given], [4])]
    assert {one.task.options["max_len"] for one in found} == {40}
    assert {one.options["softmax"]["backend"] for one in found if "softmax" in one.options} == {
        "sdpa"
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("local.window=4", "local.window=4 is what an audit varies; give it as --windows 4"),
        ("primal.rank=3", "takes no part; those that do: local, majority, none, softmax"),
        ("majority.maxlen=3", "did you mean"),
        ("majority.test=1000000000000", "test=1000000000000] cannot be held in memory here"),
        ("local.windw=4", "did you mean"),
    ],
)
def test_settings_that_an_audit_cannot_follow_are_refused(call, store, given, message):
    argv = ("locality", "majority", "--windows", "4", "--budget", "smoke", "--set", given)
    code, out, err = call(*argv)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert not store.folder.exists()


def test_runs_that_did_not_finish_are_named_and_stand_on_the_page(call, store, monkeypatch):
    def fail(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr("harness.run.measure", fail)
    code, _, err = call("locality", "majority", "--windows", "4", "--budget", "smoke")
    assert code == 1
    assert err.count("Traceback") == 4
    expected = "warning: 4 of 4 runs did not finish (failed: RuntimeError: boom)"
    assert err.splitlines()[-1] == expected
    assert (store.folder / "locality.md").read_text("utf-8").count("failed: RuntimeError: boom") > 3
    assert len(list(store.folder.glob("*.json"))) == 4


def test_the_page_holds_the_audits_of_every_task_of_its_store(call, store, unmeasured):
    for task in ("majority", "parity"):
        assert call("locality", task, "--windows", "4", "--budget", "smoke")[0] == 0
    page = (store.folder / "locality.md").read_text("utf-8")
    assert "## majority@1" in page and "## parity@1" in page


def test_an_audit_whose_page_cannot_be_written_is_refused(call, store, unmeasured):
    (store.folder / "locality.md").mkdir(parents=True)
    code, _, err = call("locality", "majority", "--windows", "4", "--budget", "smoke")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("harness: no page written: ") and "give another --store" in err
    assert len(list(store.folder.glob("*.json"))) == 4
