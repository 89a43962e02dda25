"""`harness study locality`: the runs of an audit, and the page made from them."""

import pytest

from harness.locality import shuffled, windowed
from harness.plan import Request
from harness.records.spec import RunSpec


def request(task: str, seed: int = 0, **settings) -> Request:
    return Request(
        attention="primal", task=task, budget="smoke", seed=seed, device="cpu", precision="fp32",
        compiled=False, settings=settings,
    )  # fmt: skip


def specs(request: Request, windows: list[int]) -> list[RunSpec]:
    return [one.spec for one in (*windowed(request, windows), *shuffled([request], windows))]


def test_an_audit_has_full_and_no_attention_and_every_window_and_block():
    runs = specs(request("listops", seed=3), [4, 16])
    assert [
        (one.attention, one.options.get("local", {}).get("window"), one.task.block) for one in runs
    ] == [
        ("softmax", None, 0), ("none", None, 0), ("local", 4, 0), ("local", 16, 0),
        ("softmax", None, 4), ("softmax", None, 16),
    ]  # fmt: skip
    assert {one.seed for one in runs} == {3}
    assert len({one.id for one in runs}) == len(runs)


def test_locality_runs_its_cells_once_and_writes_its_page(call, store, unmeasured):
    argv = ("study", "locality", "majority", "--windows", "4", "--budget", "smoke")
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


def test_a_window_or_block_of_whole_sequences_is_left_out_with_a_warning():
    given = request("majority", majority={"max_len": 16})
    line = r"sequences of majority@1\[max_len=16,.*\] have at most 16 tokens, and from"
    with pytest.warns(UserWarning, match=rf"window 15 is left out: {line} 15 on it ch") as warned:
        *_, last = windowed(given, [14, 15])
    assert len(warned) == 1 and last.spec.options["local"]["window"] == 14
    with pytest.warns(UserWarning, match=rf"block 16 is left out: {line} 16 on it ch") as warned:
        (only,) = shuffled([given], [15, 16])
    assert len(warned) == 1 and only.spec.task.block == 15


@pytest.mark.filterwarnings("always")
def test_an_audit_without_a_limiting_window_is_rejected_before_any_run(call, store):
    argv = ("study", "locality", "majority", "--windows", "31,32", "--budget", "smoke")
    code, out, err = call(*argv)
    assert (code, out) == (2, "")
    expected = "harness: windows 31, 32 cover whole sequences of majority@1[max_len=32,"
    assert err.splitlines()[-1].startswith(expected) and "give narrower --windows" in err
    assert not store.folder.exists()


def test_bad_windows_are_rejected(call, store):
    for windows in ("4,x", "0", "4,,8"):
        code, out, err = call(
            "study", "locality", "majority", "--windows", windows, "--budget", "smoke"
        )
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    assert not store.folder.exists()


@pytest.mark.parametrize("task", ["copying", "mqar"])
def test_a_task_with_target_positions_is_not_shuffled(task):
    given = [request(task, **{task: {"test": 4}}), request("majority")]
    assert [one.spec.task.name for one in shuffled(given, [4, 16])] == ["majority"] * 2


@pytest.mark.slow
def test_the_page_has_the_audits_of_its_store_and_explains_the_curve_that_is_missing(
    call, store, unmeasured
):
    # A task with target positions has no runs with shuffled blocks.
    for task in ("induction", "majority"):
        assert call("study", "locality", task, "--windows", "4", "--budget", "smoke")[0] == 0
    page = (store.folder / "locality.md").read_text("utf-8")
    of_induction, of_majority = page.index("## induction@"), page.index("## majority@1")
    missing = page.index("No runs with shuffled blocks", of_induction)
    assert missing < of_majority and page.count("No runs with shuffled blocks") == 1


def test_options_of_the_task_and_of_its_variants_can_be_set():
    settings = {"majority": {"max_len": "40"}, "softmax": {"backend": "sdpa"}}
    given = request("majority", **settings)
    runs = specs(given, [4])
    assert {one.task.options["max_len"] for one in runs} == {40}
    assert {one.options["softmax"]["backend"] for one in runs if "softmax" in one.options} == {
        "sdpa"
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("local.window=4", "local.window=4 is varied by an audit; use --windows 4"),
        ("primal.rank=3", "no run uses 'primal'; give one of local, majority"),
        ("majority.maxlen=3", "did you mean"),
        ("majority.test=1000000000000", "1e+12 examples of up to 32 tokens, needs"),
        ("local.windw=4", "did you mean"),
    ],
)
def test_settings_that_do_not_apply_are_rejected(call, store, given, message):
    argv = ("study", "locality", "majority", "--windows", "4", "--budget", "smoke", "--set", given)
    code, out, err = call(*argv)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert not store.folder.exists()


@pytest.mark.filterwarnings("always")
def test_runs_that_did_not_finish_are_named_and_are_on_the_page(call, store, monkeypatch):
    def fail(plan):
        raise RuntimeError("boom")

    monkeypatch.setattr("harness.runner.measure", fail)
    code, _, err = call("study", "locality", "majority", "--windows", "4", "--budget", "smoke")
    assert code == 1
    assert err.count("Traceback") == 4
    expected = "harness: warning: 4 of 4 runs failed (failed: RuntimeError: boom)"
    assert err.splitlines()[-1] == expected
    assert (store.folder / "locality.md").read_text("utf-8").count("failed: RuntimeError: boom") > 3
    assert len(list(store.folder.glob("*.json"))) == 4


@pytest.mark.slow
def test_an_audit_whose_page_cannot_be_written_is_one_line(call, store, unmeasured):
    (store.folder / "locality.md").mkdir(parents=True)
    code, _, err = call("study", "locality", "majority", "--windows", "4", "--budget", "smoke")
    assert (code, err.count("\n")) == (2, 1)
    page = store.folder / "locality.md"
    assert err.startswith(f"harness: {page} cannot be written (Is a directory); no page is changed")
    assert len(list(store.folder.glob("*.json"))) == 4
