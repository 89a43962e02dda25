"""The options of a command, from the signature and the docstring of its function."""

import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from harness.arguments import meanings
from harness.cli.process import Answer, Command

# The help of options that many commands have.
TEXTS = {
    "store": "Folder of records, a JSON file a run",
    "as_json": "Print one JSON document; progress goes to stderr",
}
FLAGS = {"attention": ("--attention", "-a"), "task": ("--task", "-t"), "as_json": ("--json",)}


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
    is_argument = how.pop("argument", False)
    declared = typer.Argument(**how) if is_argument else typer.Option(*flags, **how)
    annotation = Annotated[kind, declared]
    return Parameter(field, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def path(text: str | Path) -> Path:
    # An empty path would be the current folder.
    if not str(text):
        raise typer.BadParameter("the path is empty; give a path, or '.' for the current folder.")
    return Path(text)
