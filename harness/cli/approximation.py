"""`harness study approximation`: how far a variant is from softmax with the same projections."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import arguments
from harness.cli.process import Answer
from harness.cli.report import within, write_pages
from zoo.registry import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.approximation import Setting
    from harness.records.approximation import Approximation
    from zoo.registry import Value

LENGTHS, LOGITS = "128,512,2048", "1,3"


def approximation(
    name: Annotated[str, typer.Argument(help="A variant.")],
    over: Annotated[
        str, typer.Option(help="NAME.OPTION=VALUE,VALUE,...; an option of the variant.")
    ] = "",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME.OPTION=VALUE; NAME is the variant; repeatable."),
    ] = None,
    lengths: Annotated[str, typer.Option(help="Tokens, separated by commas.")] = LENGTHS,
    logits: Annotated[str, typer.Option(help="Standard deviations of q k^T / sqrt(e).")] = LOGITS,
    samples: Annotated[int, typer.Option(min=1, help="Sequences, or examples of dev.")] = 4,
    dim: Annotated[int, typer.Option(min=1, help="Model width.")] = 64,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads.")] = 2,
    run: Annotated[
        str, typer.Option(help="A run of softmax with saved weights: its inputs as well.")
    ] = "",
    store: arguments.StoreOption = Path("runs"),
    out: arguments.OutOption = None,
    as_json: arguments.JsonOption = False,
) -> Answer:
    """Compare outputs, weights and gradients of a variant with those of softmax.

    Both have the projections of the same layer. Inputs are random and smooth sequences, and with
    --run the hidden states of a trained model. Writes approximation.md, .csv, .png and .svg.
    """
    from harness.approximation import Setting
    from harness.records.files import require_writable
    from reports import pages

    sizes = arguments.integers_in("lengths", lengths, range(2, 2**63), LENGTHS)
    deviations = _positive(logits)
    arguments.require_layer_fits(max(sizes), samples, dim, heads)
    settings = [Setting(name, options, dim, heads) for options in _options(name, set_, over)]
    folder = out or store
    require_writable(folder, str(folder), "give another --out")
    results: list[Approximation] = []
    for one in _results(settings, sizes, deviations, samples, run, store):
        results.append(one)
        typer.echo(_progress(one))
    files = write_pages(within(folder, pages.approximation_files(results)))
    return Answer({"rows": results, "files": files} if as_json else "")


def _progress(one: "Approximation") -> str:
    from reports.tables.approximation import label

    return (
        f"{label(one)}, {one.inputs}, {one.length} tokens, logits {one.logits:.2g}: "
        f"{one.output:.3g}"
    )


def _results(
    settings: "Sequence[Setting]",
    lengths: "Sequence[int]",
    logits: "Sequence[float]",
    samples: int,
    run: str,
    store: Path,
) -> "Iterator[Approximation]":
    from harness import weights
    from harness.approximation import on_generated_inputs, on_inputs_of_run
    from harness.cli.spectrum import chosen_runs
    from harness.plan import restore
    from harness.records.store import Store

    records = chosen_runs(Store(store), [run]) if run else []
    for setting in settings:
        # First: a run without softmax is rejected before generated inputs take time.
        for record in records:
            files = weights.find(Store(store).weights(record.spec))
            yield from on_inputs_of_run(restore(record.spec), files[max(files)], setting, samples)
        yield from on_generated_inputs(setting, lengths, logits, samples)


def _options(name: str, set_: "Sequence[str] | None", over: str) -> "list[dict[str, Value]]":
    """The options of the variant that are given, one set for each value of `over`.

    Raises:
        UserError: they are of another variant, are unknown, or are of the wrong type.
    """
    from zoo.registry import resolve
    from zoo.variants import variants

    variant, settings = variants.find(name), arguments.settings_of(set_)
    varied = arguments.values_in("--over", [over] if over else [])
    owners = {*settings, *(field.partition(".")[0] for field in varied)}
    if others := sorted(owners - {name}):
        raise UserError(f"{others[0]!r} is not the variant; give options of {name}")
    given: list[dict[str, Value]] = [dict(settings.get(name, {}))]
    for field, values in varied.items():
        option = field.partition(".")[2]
        if option in given[0]:
            raise UserError(
                f"--set {field}={given[0][option]} gives an option that is varied; leave it out"
            )
        given = [{**one, option: value} for one in given for value in values]
    complete = [(one, resolve(name, variant, one)) for one in given]
    return [{key: value for key, value in whole.items() if key in one} for one, whole in complete]


def _positive(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in arguments.names_in([text])]
        if not all(0 < number < float("inf") for number in numbers):
            raise ValueError(text)
    except ValueError:
        raise UserError(
            f"logits {text!r} are not positive numbers; give for example {LOGITS}"
        ) from None
    return numbers
