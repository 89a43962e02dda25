"""A command: its options, from the signature and docstring of its function; output, exit code."""

import inspect
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import typer
from typer.core import TyperCommand

from harness.arguments import meanings
from zoo.registry import UserError, printable

USAGE_ERROR: Any = typer.BadParameter.__base__  # Of click, or of Typer's copy of it
TEXTS = {  # The help of options that many commands have
    "store": "Folder of records, a JSON file a run",
    "as_json": "Print one JSON document; progress goes to stderr",
}
FLAGS = {"attention": ("--attention", "-a"), "task": ("--task", "-t"), "as_json": ("--json",)}


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


def group(**options: Any) -> typer.Typer:
    # Rich markup would add a tenth of a second to every start.
    plain = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
    return typer.Typer(no_args_is_help=True, **plain, **options)


def add_command(app: typer.Typer, function: Callable[..., Any]) -> None:
    # The options are parameters of `function`, or fields of its only parameter, a dataclass; their
    # help is in the docstring. A command with an `Answer` has `--json` as well.
    kind: Any = next((p.annotation for p in inspect.signature(function).parameters.values()), None)
    of_class = bool(is_dataclass(kind))
    documented = kind if of_class else function
    texts = TEXTS | meanings(documented)
    options = [option(p.name, p.annotation, p.default, texts[p.name])
               for p in inspect.signature(documented).parameters.values()]  # fmt: skip

    @wraps(function)
    def command(*, as_json: bool = False, **values: Any) -> Any:
        return function(kind(**values)) if of_class else function(**values)

    if inspect.signature(function).return_annotation is Answer:
        options.append(option("as_json", bool, False, texts["as_json"]))
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__doc__ = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:")[0]
    app.command(name=function.__name__.rstrip("_"), cls=Command)(command)


def option(field: str, kind: Any, default: Any, text: str) -> Parameter:
    # `Annotated` adds arguments of `typer.Option`, as `{"min": 1}`, or `{"argument": True}` for an
    # argument without a flag.
    kind, *added = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    how: dict[str, Any] = {"help": f"{text}."} | {k: v for more in added for k, v in more.items()}
    types, name = (kind, *get_args(kind)), field.strip("_").replace("_", "-")
    flags = FLAGS.get(field, (f"--{name}",))
    if Path in types:
        how = {"parser": path, "metavar": "PATH"} | how
    if bool in types and default is not False:
        flags = (f"--{name}/--no-{name}",)
    declared = typer.Argument(**how) if how.pop("argument", False) else typer.Option(*flags, **how)
    annotation = Annotated[kind, declared]
    return Parameter(field, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def path(text: str | Path) -> Path:
    # An empty path would be the current folder.
    if not str(text):
        raise typer.BadParameter("the path is empty; give a path, or '.' for the current folder.")
    return Path(text)
