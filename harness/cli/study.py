"""`harness study NAME`: the studies of `harness.studies`, each imported when it is called."""

import inspect
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from harness.cli.options import add_command, group
from harness.cli.process import Answer

if TYPE_CHECKING:
    from harness.studies import Study


class Studies(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        from harness import api

        return [*api.studies()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        from harness import api

        return command_of(api.study_of(cmd_name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        from harness import api

        with formatter.section("Commands"):
            formatter.write_dl([*api.studies().items()])


study = group(
    cls=Studies, help="Measure what attention matrices and layers do, apart from accuracy and cost."
)


def command_of(kind: "type[Study]") -> Any:
    def run(study: Any) -> Answer:
        from harness import api

        rows, files = api.write_study(study, lambda line: typer.echo(line, err=True))
        return Answer("", {"rows": rows, "files": files}, files=files)

    run.__annotations__["study"] = kind
    run.__name__ = kind.name
    run.__doc__ = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0]
    app = group()
    add_command(app, run)
    return typer.main.get_command(app)
