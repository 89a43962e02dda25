"""How a run is shown."""

import io

import pytest
from rich.console import Console

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
