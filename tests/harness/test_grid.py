"""Many runs: none is repeated, a failing one stops no other, one beyond memory is rejected."""

import sys
from collections import deque
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from harness.engines import Resources
from harness.environment import use_threads
from harness.grid import ATTEMPTS, check, run_all
from harness.questions import spec_of
from harness.records.frame import of_records
from harness.runner import execute, failure, save_record
from harness.runs import matched, parameters
from harness.train import DivergedError
from tests.conftest import one_line
from tests.harness.conftest import TREES, requested
from tests.harness.specs import raising
from tests.reports.conftest import make_record
from zoo.contract import Unsupported
from zoo.registry import UserError


@pytest.fixture
def grid(store, caplog):
    # Returns of each run the seed, the status, and whether it was executed.
    caplog.set_level("INFO", "harness")

    def make(*specs, engine="local", rerun=False, **how) -> list[tuple[int, str, bool]]:
        resources = Resources(engine=engine, workers=1, threads=torch.get_num_threads())
        asked = check(specs, store, rerun=rerun, **how)
        outcomes = run_all(asked, store, resources, rerun=rerun)
        return [(record.spec.seed, record.status, new) for record, new in outcomes]

    return make


@pytest.fixture
def two(tiny) -> list:
    return [tiny(seed=0), tiny(seed=1)]


def test_a_finished_run_is_not_repeated_unless_rerun(two, store, grid, interrupt_at):
    interrupt_at(0, DivergedError("task loss is nan by step 1"))
    assert grid(two[0]) == [(0, "diverged", True)]
    store.checkpoint(two[0]).touch()  # of a process that was killed then
    assert grid(*two) == [(0, "diverged", False), (1, "ok", True)]
    assert not store.checkpoint(two[0]).exists()
    assert grid(*two, rerun=True) == [(0, "ok", True), (1, "ok", True)]


def test_a_failing_run_does_not_stop_the_next_and_is_repeated_later(two, grid, interrupt_at):
    interrupt_at(0, RuntimeError("boom"))
    assert grid(*two) == [(0, "failed", True), (1, "ok", True)]
    assert grid(*two) == [(0, "ok", True), (1, "ok", False)]


def test_the_next_run_starts_if_one_cannot(two, store, grid, caplog, interrupted, environment_is):
    saved = store.checkpoint(interrupted(two[0]))
    environment_is(threads=99)
    assert grid(*two) == [(0, "failed", True), (1, "ok", True)]
    reason = store.find(two[0]).reason
    assert reason.startswith(f"{saved} was started with threads ") and "; continue there" in reason
    assert saved.exists() and not any(line.levelname == "ERROR" for line in caplog.records)
    line, *_ = (text for text in caplog.messages if "runs done" in text)
    text = "softmax listops seed 0: failed; 0 of 2 runs done, 0 running, 1 failed"
    assert line.startswith(text)


def test_a_rerun_ignores_a_checkpoint(tiny, store, grid, interrupted, environment_is):
    # Of a run without a final record: the checkpoint of a finished one is removed as a leftover.
    assert store.checkpoint(interrupted(tiny())).exists()
    # Continued, the run would have this environment's threads as an error.
    environment_is(threads=99)
    assert grid(tiny(), rerun=True) == [(0, "ok", True)]
    assert store.find(tiny()).environment.threads == 99


def test_a_folder_in_place_of_a_checkpoint_is_rejected_before_training(tiny, store, grid):
    specs, path = [tiny(), tiny("primal")], store.checkpoint(tiny("primal"))
    path.mkdir(parents=True)
    with one_line(path, "is a folder", "move it away"):
        check(specs, store)
    # A folder of a finished run is left, and is no reason to reject others.
    store.write(make_record("primal").model_copy(update={"spec": specs[1]}))
    assert grid(specs[0]) == [(0, "ok", True)] and path.is_dir()


def test_the_check_rejects_a_later_run_before_the_first_and_draws_no_random_number(tiny, store):
    state = torch.get_rng_state()
    specs = [tiny(), tiny("primal")]
    assert [asked.spec for asked in check(specs, store)] == specs
    assert torch.equal(torch.get_rng_state(), state)
    with one_line("64 training examples, fewer than a batch of 65; set listops.train higher"):
        check([tiny(), tiny(batch=65)], store)


def test_a_variant_that_does_not_support_a_task_is_skipped(store):
    tasks = ("copying", "listops")
    specs = [requested(name, task) for task in tasks for name in ("nystrom", "softmax")]
    line = r"skipped: nystrom on copying@1\S*: nystrom is not causal; .* --set copying.causal=false"
    with pytest.warns(UserWarning, match=line) as warned:
        runnable = check([specs[0], *specs], store)
    assert [asked.spec for asked in runnable] == specs[1:] and len(warned) == 1
    assert check([requested("nystrom", "copying", copying={"causal": "false"})], store)
    with pytest.raises(Unsupported, match=r"^nystrom on induction@1.*nystrom is not causal"):
        check([requested("nystrom", "induction")], store)


def test_a_run_of_another_process_is_left_to_it_until_that_ends(two, store, grid, monkeypatch):
    other = store.locks.acquire(two[0].file_name, threads=1, steps=4)
    waited = []
    monkeypatch.setattr("harness.grid.SECONDS_PER_LOOK", 0.01)

    def sleep(seconds):
        waited.append(store.find(two[1]).status)
        other.release(keep_state=True)

    monkeypatch.setattr("harness.grid.time.sleep", sleep)
    assert grid(*two) == [(0, "ok", True), (1, "ok", True)] and waited == ["ok"]


@pytest.mark.parametrize(("status", "began", "new"), [
    ("failed", "later", False), ("failed", "before", True), ("interrupted", "later", True),
])  # fmt: skip
def test_a_failure_of_another_command_is_not_repeated_by_this_one(tiny, store, status, began, new):
    record = failure(tiny(), store, "boom").model_copy(update={"status": status})
    store.write(record)
    before = record.started if began == "before" else ""
    assert execute(record.spec, store, before=before).new == new
    assert (store.find(record.spec).status == "ok") == new


# Another version of the variant, and another one of training.
OTHER_CODE = [{"versions": {"softmax": "0.0"}}, {"training": "0.0"}]


@pytest.mark.parametrize("code", OTHER_CODE)
def test_a_run_of_other_code_is_made_again_unless_it_is_kept(two, store, grid, code):
    grid(*two)
    old = store.find(two[0]).model_copy(update=code)
    store.write(old)
    assert of_records(store.read()[0])["outdated"].tolist() == [True, False]
    assert grid(*two, keep_outdated=True) == [(0, "ok", False), (1, "ok", False)]
    assert store.find(two[0]) == old and grid(*two) == [(0, "ok", True), (1, "ok", False)]
    assert not of_records(store.read()[0])["outdated"].any()


def test_a_failure_replaces_a_finished_run_of_other_code_alone(tiny, store, grid, interrupt_at):
    grid(tiny())
    record, failed = store.find(tiny()), failure(tiny(), store, "boom")
    interrupt_at(2, RuntimeError("boom"))
    assert grid(tiny(), rerun=True) == [(0, "ok", True)] and store.find(tiny()) == record
    store.write(record.model_copy(update=OTHER_CODE[0]))
    interrupted = failed.model_copy(update={"status": "interrupted"})
    found = store.find(tiny())
    assert save_record(interrupted, store, found).status == "ok"
    assert save_record(failed, store, found) == failed == store.find(tiny())


@pytest.fixture
def threads(monkeypatch):
    # An engine whose first calls end as given; the seeds of all calls.
    ends, given = deque(), []

    class Threads(ThreadPoolExecutor):
        def submit(self, fn, /):
            given.append(fn.args[0].seed)
            if not ends:
                return super().submit(fn)
            if isinstance(end := ends.popleft(), type):
                raise end("a pool that is of no use any more")
            future = Future()
            future.set_exception(end)
            return future

    engine = SimpleNamespace(create=lambda resources, store: Threads(resources.workers or 1))
    monkeypatch.setitem(sys.modules, "harness.engines.threads", engine)
    return SimpleNamespace(ends=ends, given=given)


KILLED = BrokenExecutor("it was ended by SIGKILL")


@pytest.mark.parametrize("ends", [
    [KILLED] * (ATTEMPTS - 1), [KILLED] * ATTEMPTS, [BrokenExecutor],
], ids=["nearly", "always", "pool"])  # fmt: skip
def test_a_run_whose_process_dies_is_executed_again_and_fails_in_the_end(
    two, store, grid, threads, ends
):
    threads.ends.extend(ends)
    status = "failed" if len(ends) == ATTEMPTS else "ok"
    assert grid(*two, engine="threads") == [(0, status, True), (1, "ok", True)]
    assert threads.given.count(0) == min(len(ends) + 1, ATTEMPTS)
    reason = f"its process ended {ATTEMPTS} times; the last time it was ended by SIGKILL"
    assert store.find(two[0]).reason == (reason if status == "failed" else "")
    assert not store.locks.is_held(two[0].file_name)


def test_an_engine_gives_warnings_and_tracebacks_of_runs(
    tiny, grid, caplog, threads, interrupted, interrupt_at, monkeypatch
):
    interrupted(tiny())
    monkeypatch.setattr("harness.environment.versions_of", lambda names: {"softmax": "0.0"})
    interrupt_at(2, RuntimeError("boom"))
    with pytest.warns(UserWarning, match="of other code of softmax; the run starts again"):
        assert grid(tiny(), engine="threads") == [(0, "failed", True)]
    (line,) = [line.getMessage() for line in caplog.records if line.levelname == "ERROR"]
    assert line.startswith("softmax listops seed 0: failed:\nTraceback") and "boom" in line
    monkeypatch.setattr("harness.runner.run", raising(UserError("the disk is full")))
    with pytest.raises(UserError, match="the disk is full"):
        grid(tiny(), engine="threads")


@pytest.mark.parametrize("foreign", [True, False])
def test_runs_of_a_plug_in_have_processes_of_their_own(tiny, grid, monkeypatch, foreign):
    isolated = []
    monkeypatch.setattr("harness.grid.is_foreign", lambda variants: foreign)
    monkeypatch.setattr("harness.grid.start", lambda of, _: isolated.append(of.isolated))
    assert grid(tiny()) == [(0, "ok", True)] and isolated == [foreign]


def test_an_interrupted_run_continues_with_its_threads(
    tiny, store, grid, interrupt_at, monkeypatch
):
    monkeypatch.setattr("harness.environment.os.cpu_count", lambda: 8)
    interrupt_at(3, KeyboardInterrupt())
    with use_threads(3), pytest.raises(KeyboardInterrupt):
        grid(tiny())
    assert grid(tiny()) == [(0, "ok", True)]
    assert store.find(tiny()).environment.threads == 3 != torch.get_num_threads()


def test_a_run_that_another_machine_began_comes_last_and_starts_again(
    two, store, caplog, grid, interrupt_at, environment_is, monkeypatch
):
    interrupt_at(3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        grid(two[0])
    monkeypatch.setattr("harness.records.locks.platform.node", lambda: "another")
    environment_is(device="an abacus", threads=99)
    caplog.clear()
    with pytest.warns(UserWarning, match="is of another machine; the run starts again"):
        assert grid(*two) == [(0, "ok", True), (1, "ok", True)]
    begun = [text for text in caplog.messages if text.endswith(": train")]
    assert begun == [f"softmax listops seed {seed}: train" for seed in (1, 0)]
    record = store.find(two[0])
    assert record.environment.threads == 99
    assert [point.step for point in record.curve] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("field", "size"), [("depth", 3 * 10**6), ("dim", 2**62), ("feed_forward", 2**40)]
)
def test_a_model_beyond_the_memory_is_rejected_before_it_is_built(store, monkeypatch, field, size):
    monkeypatch.setattr("harness.grid.build_model", raising(AssertionError("it is built")))
    with one_line("GiB of memory", "GiB is all; lower"):
        check([requested("primal", "listops", listops=TREES, model={field: size})], store)


@pytest.mark.parametrize("attention", ["linformer", "none", "softmax+primal", "softmax"])
def test_a_matched_model_has_the_parameters_of_softmax_at_the_recipe(attention):
    target = parameters(requested("softmax", "listops", listops=TREES))
    plain = requested(attention, "listops", listops=TREES)
    equal = spec_of(plain.question, attention, values=matched(plain.question, attention, {}, "cpu"))
    assert parameters(equal) == pytest.approx(target, rel=0.01)
    if attention in ("linformer", "none"):
        assert abs(parameters(plain) / target - 1) > 0.01
        assert equal.values == {"model.feed_forward": equal.model.feed_forward}
    assert equal.id != plain.id and "match" not in plain.model_dump_json()
    # A variant that does not support the task is left to its run.
    causal = requested("softmax", "mqar", mqar={"causal": True, "train": 8}).question
    assert (matched(causal, attention, {}, "cpu") == {}) == (attention == "linformer")
