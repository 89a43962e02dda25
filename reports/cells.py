"""Tables of pages: how a number, an accuracy and a failure are written, and what marks mean."""

from collections.abc import Sequence

from reports.rows import Row

NOTHING = "–"
ONE_RUN, PARTIAL, PAPER, GAP = "†", "‡", "§", "¶"

NOTES = {
    ONE_RUN: f"{ONE_RUN} One seed: the interval is over test examples.",
    PARTIAL: f"{PARTIAL} Some runs did not finish.",
    GAP: f"{GAP} Fails checks, and says so: `harness check` names them.",
    PAPER: f"{PAPER} Measured by others, elsewhere; `leaderboard.md` names the source.",
}


def number(value: float) -> str:
    """Three significant digits, or all digits before the point where there are more."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:#.3g}"
    return f"{value:.3g}" if "e" in text else text.rstrip(".")


def percent(fraction: float) -> str:
    """A fraction as a percentage with one digit behind the point, without the sign."""
    return f"{100 * fraction:.1f}"


def accuracy(row: Row) -> str:
    """Test accuracy in percent with its interval and marks; how the runs ended that have none."""
    if row.accuracy is None:
        return row.failures
    mean, low, high, over = row.accuracy
    text = f"{percent(mean)} [{percent(low)}, {percent(high)}]"
    text += ONE_RUN if over == "examples" else ""
    return f"{text}{PARTIAL}; {row.failures}" if row.failures else text


def baseline_lines(baselines: Sequence[tuple[str, float]], columns: int) -> list[list[str]]:
    """A line of so many columns for each floor, in italics: its name, and its accuracy."""
    return [[f"*{name}*", f"*{percent(of)}*", *[""] * (columns - 2)] for name, of in baselines]


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns but the first stand to the right."""
    # Written out rather than padded by a library, whose idea of a character's width may change.
    rule = ["---"] + ["--:"] * (len(headings) - 1)
    body = [[_safe(cell) for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in [headings, rule, *body])


def notes(page: str) -> str:
    """What the marks on a page mean, in one line; empty where it has none."""
    return " ".join(note for mark, note in NOTES.items() if mark in page)


def _safe(cell: str) -> str:
    """The cell as plain text of one line: a message may hold what Markdown reads as its own."""
    return " ".join(cell.split()).replace("|", "\\|").replace("<", "&lt;")
