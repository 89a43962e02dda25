"""A command as a process: options, signals, warnings, messages of one line, exit codes."""

import inspect
import json
import math
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import MISSING, Field, fields
from functools import wraps
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin

import typer
from typer.core import TyperCommand

from harness.catalogue import meanings
from harness.interrupts import Interrupts, Terminated
from zoo.registry import UserError, in_one_line, printable

# Depending on its version, Typer uses the package click or a copy of it.
USAGE_ERROR: Any = typer.BadParameter.__base__


FLAGS = {"attention": ("--attention", "-a"), "task": ("--task", "-t"), "as_json": ("--json",)}
"""The flags of options that have another one than their name."""


class Answer(NamedTuple):
    """The text that a command prints at its end, or with `--json` a document; and the exit code."""

    content: Any = ""
    code: int = 0


class Command(TyperCommand):
    """A command that rejects repeated options and infinite numbers, and prints its output."""

    def invoke(self, ctx: Any) -> None:
        """Run the command, then print its output, line by line as `printable` text.

        With `--json`, only the output is printed on stdout: one document, in which numbers
        that are not finite are null. The rest goes to stderr. An `Answer` ends with `typer.Exit`.
        """
        as_json = ctx.params.get("as_json")
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            answer = super().invoke(ctx)
        if answer is None:
            return
        text = answer.content
        if as_json:
            from pydantic_core import to_jsonable_python

            finite = to_jsonable_python(text, inf_nan_mode="null")
            text = json.dumps(finite, indent=2, allow_nan=False)
        if text:
            typer.echo("\n".join(map(printable, text.split("\n"))))
        raise typer.Exit(answer.code)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            UsageError: an option is unknown or empty; one that takes one value is repeated:
                Typer would use the last value; or a number is not finite: no bound excludes NaN.
        """
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


def group(**options: Any) -> typer.Typer:
    """A command that has commands."""
    # Rich markup would add a tenth of a second to every start.
    plain = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}
    return typer.Typer(no_args_is_help=True, **plain, **options)


def add_command(app: typer.Typer, function: Callable[[Any], Any]) -> None:
    """Add a command, whose options are the fields of the dataclass that `function` takes."""
    kind: Any = next(iter(inspect.signature(function).parameters.values())).annotation

    @wraps(function)
    def command(**values: Any) -> Any:
        return function(kind(**values))

    texts = meanings(kind)
    options = [option(field, texts[field.name]) for field in fields(kind)]
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    app.command(name=function.__name__.rstrip("_"), cls=Command)(command)


def option(field: Field[Any], text: str) -> Parameter:
    """The option that is declared by a field of a dataclass, whose docstring says `text` of it.

    Its type is a text, a number, a flag, a path, or a list of texts; `Annotated` adds arguments of
    `typer.Option`, as `{"min": 1}`, and `{"argument": True}`, which needs no flag.
    """
    kind: Any = field.type
    kind, *added = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    how: dict[str, Any] = {"help": f"{text}."} | {k: v for more in added for k, v in more.items()}
    types, name = (kind, *get_args(kind)), field.name.strip("_").replace("_", "-")
    flags = FLAGS.get(field.name, (f"--{name}",))
    if Path in types:
        how = {"parser": path, "metavar": "PATH"} | how
    if bool in types and field.default is not False:
        flags = (f"--{name}/--no-{name}",)
    is_argument = how.pop("argument", False)
    declared = typer.Argument(**how) if is_argument else typer.Option(*flags, **how)
    default = Parameter.empty if field.default is MISSING else field.default
    annotation = Annotated[kind, declared]
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def path(text: str | Path) -> Path:
    """Read a path, or a default.

    Raises:
        BadParameter: the text is empty, which would name the current folder.
    """
    if not str(text):
        raise typer.BadParameter("the path is empty; give a path, or '.' for the current folder.")
    return Path(text)


def invoke(app: typer.Typer, name: str, argv: Sequence[str]) -> int:
    """Run the commands of `app`, which the help calls `name`; return the exit code."""
    # Not `app()`, which makes an exit code of every interrupt, SIGTERM included.
    command = typer.main.get_command(app)
    try:
        with command.make_context(name, list(argv)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except USAGE_ERROR as error:
        # A command of commands that is given alone lists them: that is no error.
        if not (text := error.format_message()).startswith("Usage:"):
            raise
        typer.echo(text)
    return 0


def execute(command: Callable[[], int]) -> NoReturn:
    """Run `command` and exit with the code that it returns.

    Bad input is one line on stderr and exit code 2. An interrupt is exit code 130, SIGTERM 143.
    If a plug-in or a library tries to end the process, the exit code is 1.
    """
    # Otherwise the profiler that measures allocations writes messages to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with Interrupts(), warnings.catch_warnings():
        warnings.showwarning = _show_once()
        code, message = _outcome(command)
    if message:
        _print_error(message)
    sys.exit(code)


def _outcome(command: Callable[[], int]) -> tuple[int, str]:
    """The exit code of `command`, and what to print on stderr."""
    if sys.stdout is None:
        return 2, "harness: standard output is closed; redirect it, for example to /dev/null"
    try:
        code = command()
        sys.stdout.flush()
        return code, ""
    except UserError as error:
        return 2, f"harness: {printable(str(error))}"
    except USAGE_ERROR as error:
        from pydantic import ValidationError

        text, cause = " ".join(error.format_message().split()), error.__cause__ or error.__context__
        if isinstance(cause, ValidationError):
            # The message gives only the rule.
            text += f", not {cause.errors()[0]['input']!r}."
        path = error.ctx.command_path if error.ctx else "harness"
        return 2, f"harness: {printable(text)} See: {path} --help"
    except BrokenPipeError:
        return 1, ""
    except OSError as error:
        if error.filename is not None:
            path = printable(os.fsdecode(error.filename))
            return 2, f"harness: {path} cannot be used ({error.strerror}); give another path"
        reason = _output_error("\n") or printable(in_one_line(error))
        return 1, f"harness: {reason}"
    except KeyboardInterrupt as error:
        code, what = (143, "terminated") if isinstance(error, Terminated) else (130, "interrupted")
        notes = dict.fromkeys(getattr(error, "__notes__", ()))
        return code, "; ".join([f"harness: {what}", *notes])
    except Exception:
        raise
    except BaseException as error:
        # No command raises it: a plug-in that calls `sys.exit(0)` has not succeeded.
        text = printable(in_one_line(error))
        return 1, f"harness: a plug-in or library ended the command ({text})"
    finally:
        _output_error()


def _output_error(text: str = "") -> str:
    """Write `text` to stdout and flush it; return why that fails, as every later write does."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Otherwise the flush at exit fails as well.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"standard output cannot be written ({error.strerror})"
    return ""


def _show_once() -> Callable[..., None]:
    """A function that prints each warning once, as one line without its source location."""
    printed: set[str] = set()

    def show(message: Warning | str, *_: object) -> None:
        line = f"harness: warning: {printable(' '.join(str(message).split()))}"
        if line not in printed:
            printed.add(line)
            _print_error(line)

    return show


def _print_error(line: str) -> None:
    if sys.stderr is None:  # closed
        return
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
