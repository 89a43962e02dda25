"""A command as a process: its arguments, its output, and its exit code."""

import json
import math
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from zoo.registry import UserError, printable

USAGE_ERROR: Any = typer.BadParameter.__base__  # Of click, or of Typer's copy of it


class Answer(NamedTuple):
    """The output of a command: text, or a document with `--json`, exit code, and written files."""

    text: str = ""
    document: Any = None
    code: int = 0
    files: Sequence[Path] = ()


class Command(TyperCommand):
    def invoke(self, ctx: Any) -> None:
        # With `--json`, stdout has only one document; numbers that are not finite are null.
        as_json = ctx.params.get("as_json")
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            answer = super().invoke(ctx)
            for file in answer.files if answer else ():
                typer.echo(printable(str(file)))
        if answer is None:
            return
        text = answer.text
        if as_json:
            from pydantic_core import to_jsonable_python

            document = text if answer.document is None else answer.document
            finite = to_jsonable_python(document, inf_nan_mode="null")
            text = json.dumps(finite, indent=2, allow_nan=False)
        if text:
            typer.echo("\n".join(map(printable, text.split("\n"))))
        raise typer.Exit(answer.code)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer would use the last value of a repeated option; no bound excludes NaN.
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, count in Counter(order).items():
            if count > 1 and not getattr(parameter, "multiple", True):
                raise typer.BadParameter(
                    f"Option {parameter.opts[0]} is given twice; give it once.", ctx
                )
        rest = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            texts = value if isinstance(value, list | tuple) else (value,)
            if "" in texts and ctx.get_parameter_source(name).name == "COMMANDLINE":
                flag = next(p.opts[0] for p in self.params if p.name == name)
                raise typer.BadParameter(f"{flag} is empty; give a value, or leave it out.", ctx)
            if isinstance(value, float) and not math.isfinite(value):
                raise typer.BadParameter(f"Option --{name}={value} is not a finite number.", ctx)
        return rest


def invoke(app: typer.Typer, name: str, argv: Sequence[str]) -> int:
    # Not `app()`, which turns every interrupt and SIGTERM into an exit code.
    command = typer.main.get_command(app)
    try:
        with command.make_context(name, list(argv)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except USAGE_ERROR as error:
        # A group of commands without a command lists them.
        if (text := error.format_message()).startswith("Usage:"):
            typer.echo(text)
            return 0
        from pydantic import ValidationError

        text, cause = " ".join(text.split()), error.__cause__ or error.__context__
        if isinstance(cause, ValidationError):
            # The message has only the rule.
            text += f", not {cause.errors()[0]['input']!r}."
        path = error.ctx.command_path if error.ctx else name
        raise UserError(f"{text} See: {path} --help") from error
    return 0
