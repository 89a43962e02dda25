"""How a run is shown."""

import io

import pytest
from rich.console import Console

from harness.terminal import Screen


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("errors_terminal", [False, True])
def test_a_failure_goes_where_no_bar_erases_it(plan, terminal, errors_terminal):
    out, err = io.StringIO(), io.StringIO()
    consoles = (
        Console(file=out, force_terminal=terminal),
        Console(file=err, force_terminal=errors_terminal),
    )
    with Screen(*consoles) as screen:
        screen.watch(plan()).failed("Traceback: boom")
    shared = terminal and errors_terminal
    assert ("Traceback: boom" in out.getvalue(), "Traceback: boom" in err.getvalue()) == (
        shared, not shared,
    )  # fmt: skip
