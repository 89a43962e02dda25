"""How a run is shown."""

import io

import pytest
from rich.console import Console

from harness.callbacks import NoProgress, Reported
from harness.cli.grid_view import grid


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("errors_terminal", [False, True])
def test_a_traceback_goes_where_no_bar_erases_it(plan, terminal, errors_terminal):
    out, err = io.StringIO(), io.StringIO()
    console = Console(file=out, force_terminal=terminal)
    with grid(console, Console(file=err, force_terminal=errors_terminal), str) as view:
        view.callback(plan().spec).failed("Traceback: boom")
    shared = terminal and errors_terminal
    assert ("Traceback: boom" in out.getvalue()) == shared
    assert ("Traceback: boom" in err.getvalue()) == (not shared)


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(1), ValueError("a defect")])
def test_a_progress_that_cannot_be_shown_changes_no_run(store, error):
    lock, shown = store.locks.acquire("cell", threads=1, steps=9), []

    class Broken(NoProgress):
        def phase(self, name):
            shown.append(name)
            raise error

    reported = Reported(Broken(), lock)
    with pytest.warns(UserWarning, match="progress is not shown") as caught:
        reported.phase("train")
        reported.phase("test")
    assert (len(caught), shown, store.locks.state("cell").phase) == (1, ["train"], "test")


def test_an_interrupt_while_progress_is_shown_is_an_interrupt(store):
    class Interrupted(NoProgress):
        def phase(self, name):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Reported(Interrupted(), store.locks.acquire("cell", threads=1, steps=9)).phase("train")
