"""`harness study NAME`: the studies of `harness.studies`, each imported when it is called."""

import inspect
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from harness import studies
from harness.cli.files import within, write_pages
from harness.cli.process import Answer, add_command, group

if TYPE_CHECKING:
    from harness.records.study import StudyRecord
    from harness.studies import Study, Table


class Studies(TyperGroup):
    """The commands of the studies."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Their names."""
        return [*studies.names()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a study; raises `UserError` where there is none."""
        return command_of(studies.find(cmd_name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the studies with their summaries, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([*studies.names().items()])


study = group(
    cls=Studies, help="Measure what attention matrices and layers do, apart from accuracy and cost."
)


def command_of(kind: "type[Study]") -> Any:
    """The command of a study: its fields are options."""

    def run(study: Any) -> Answer:
        document = write(study)
        return Answer(document if study.as_json else "")

    run.__annotations__["study"] = kind
    run.__name__ = kind.name
    run.__doc__ = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:")[0]
    app = group()
    add_command(app, run)
    return typer.main.get_command(app)


def write(study: "Study") -> dict[str, Any]:
    """Make the results of a study that its store lacks, and write the pages of all that it has.

    They are the `rows`, the paths the `files`.
    """
    from harness.records.store import Store, StudyStore
    from harness.records.study import frame_of
    from harness.report import study_pages

    folder = study.store
    store = StudyStore.within(folder)
    tables = [*study.tables(Store(folder))]
    store.require_writable()
    store.remove_partial_files()
    records = [_record(study, table, store) for table in tables]
    files = write_pages(within(folder, study_pages(type(study), folder)))
    rows = [row for record in records for row in frame_of([record]).to_dict("records")]
    return {"rows": rows, "files": files}


def _record(study: "Study", table: "Table", store: Any) -> "StudyRecord":
    """The record of a table, made unless the store has it."""
    from harness.environment import describe
    from harness.records.fields import now
    from harness.records.study import StudyRecord, StudySpec, table_of

    subject, options, rows, since = table
    spec = StudySpec(study=study.name, subject=subject, options=dict(options))
    found = store.find(spec)
    # Times in UTC of one format are ordered as texts are.
    if found and not study.rerun and found.spec == spec and found.started >= since:
        return found

    def announce(line: str) -> None:
        typer.echo(f"{subject}: {line}", err=True)

    started, columns = now(), table_of([*rows(announce)])
    record = StudyRecord(spec=spec, started=started, environment=describe("cpu"), table=columns)
    store.write(record)
    return record
