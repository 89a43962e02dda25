"""`harness study NAME`: a study of `harness.studies`, imported when it is called."""

import inspect
from typing import Any

import typer
from typer.core import TyperGroup

from harness import studies
from harness.cli.process import Answer, add_command, group


class Studies(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return [*studies.names()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        kind = studies.find(cmd_name)

        def run(study: Any) -> Answer:
            from reports.store import write_study

            rows, files = write_study(study)
            return Answer("", {"rows": rows, "files": files}, files=files)

        run.__annotations__["study"] = kind
        run.__name__ = kind.name
        run.__doc__ = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0]
        app = group()
        add_command(app, run)
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*studies.names().items()])


study = group(
    cls=Studies, help="Measure what attention matrices and layers do, apart from accuracy and cost."
)
