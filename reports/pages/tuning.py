"""The page of trials as Markdown: the score on dev at every point of a grid."""

from collections.abc import Sequence

from harness.records.tuning import Point, point
from reports.markdown import escape, table
from reports.tables.rows import failure
from reports.tables.settings import field_text, recipe
from reports.tables.tuning import Curve, Study, name_of
from reports.tables.values import NOTHING

HEAD = """\
# Tuning: score on dev at each point of the grid

Scores on dev of one seed. The point in bold is the best; of equal points it is the one
nearest to the recipe. The runs of the leaderboard are at this point, with other seeds. A
variant whose other points are far below works at few rates only. A point at the end of the
grid may not be the best there is.
"""


def tuning(studies: Sequence[Study]) -> str:
    """The page: a row for each variant, a column for each point."""
    parts = [HEAD]
    for study in studies:
        parts += [f"## {escape(study.title)}\n", f"{escape(recipe(study.setting))}\n"]
        head = ["attention", *(escape(_heading(grid_point)) for grid_point in study.points)]
        parts.append(table(head, [_line(c, study.points) for c in study.curves], align_right=True))
    return "\n".join(parts)


def _heading(grid_point: Point) -> str:
    return ", ".join(f"{field_text(path)} {value}" for path, value in grid_point.items())


def _line(curve: Curve, grid: Sequence[Point]) -> list[str]:
    chosen = name_of(point(curve.chosen.spec)) if curve.chosen else ""
    cells = [_cell(curve, grid_point, chosen) for grid_point in grid]
    return [escape(curve.label), *cells]


def _cell(curve: Curve, grid_point: Point, chosen: str) -> str:
    name, score = name_of(grid_point), curve.score(grid_point)
    if score is not None:
        text = curve.metric.text(score)
        return f"**{text}**" if name == chosen else text
    trial = curve.trials.get(name)
    return escape(failure(trial)) if trial else NOTHING
