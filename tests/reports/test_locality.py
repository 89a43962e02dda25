"""Locality audits, made from records alone."""

import pytest

from reports.locality import audits, figure, markdown, write


@pytest.fixture
def runs(record):
    """The runs of one audit: windows of 8 and 32, the same blocks, and both ends."""

    def local(window, accuracy, **more):
        return record("local", accuracy=accuracy, options={"local": {"window": window}}, **more)

    def shuffled(block, accuracy):
        made = record("softmax", accuracy=accuracy, key=f"listops@1, blocks of {block} shuffled")
        task = made.spec.task.model_copy(update={"block": block})
        return made.model_copy(update={"spec": made.spec.model_copy(update={"task": task})})

    return [
        record("softmax", accuracy=0.37), record("none", accuracy=0.17), local(8, 0.2),
        local(32, 0.3), shuffled(8, 0.21), shuffled(32, 0.36), record("performer", accuracy=0.9),
    ]  # fmt: skip


def test_a_table_has_a_row_a_window_and_the_whole_at_its_end(runs):
    text = markdown(audits(runs))
    rows = [
        [cell.split()[0] if cell.split() else "" for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ][2:]
    assert rows == [
        ["0", "17.0", ""], ["8", "20.0", "21.0"], ["32", "30.0", "36.0"], ["all", "37.0", ""],
        ["*majority*", "*17.0*", ""], ["*chance*", "*10.0*", ""],
    ]  # fmt: skip
    assert "90.0" not in text
    assert "## listops@1, budget `paper`, cuda: NVIDIA H100\n" in text


def test_seeds_of_a_window_are_one_accuracy(runs, record):
    other = record("local", accuracy=0.4, seed=1, options={"local": {"window": 32}})
    (audit,) = audits([*runs, other])
    assert audit.seen[32].mean == pytest.approx(0.35)
    assert audit.seen[32].over == "seeds"


def test_machines_tasks_and_recipes_are_audits_of_their_own(runs, record):
    def windows(**more):
        return [record("local", options={"local": {"window": w}}, **more) for w in (8, 32)]

    others = [
        *windows(machine="NVIDIA H200"), *windows(task="text", key="text@1"),
        *windows(train={"steps": 7}),
    ]  # fmt: skip
    assert len(audits([*runs, *others])) == 4


def test_a_run_that_did_not_finish_is_no_point(runs, record):
    failed = record("local", status="failed", reason="no", options={"local": {"window": 128}})
    assert 128 not in audits([*runs, failed])[0].seen


def test_a_leaderboard_without_windows_makes_no_audit(record, tmp_path):
    assert audits([record("softmax"), record("none")]) == []
    with pytest.raises(ValueError, match="harness locality TASK"):
        write([record("softmax")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_figure_is_drawn_the_same_way_twice_and_written_beside_the_table(runs, tmp_path):
    paths = write(runs, tmp_path)
    assert [path.name for path in paths] == ["locality.md", "locality.png", "locality.svg"]
    again = figure(audits(reversed(runs)))
    assert all((tmp_path / name).read_bytes() == content for name, content in again.items())
    svg = again["locality.svg"].decode()
    assert svg.count("<!-- sees a window -->") == 1
    assert "<!-- majority -->" in svg
