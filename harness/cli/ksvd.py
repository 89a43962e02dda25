"""`harness study ksvd`: does training Primal-Attention approach the exact kernel SVD?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli import arguments
from harness.cli.process import Answer
from harness.cli.report import within, write_pages
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.records.ksvd import KsvdCurve

LOSSES = "ksvd,task,task+ksvd,reconstruction"


def ksvd(
    losses: Annotated[str, typer.Option(help="What is minimised, separated by commas.")] = LOSSES,
    trained: Annotated[
        str, typer.Option(help="weights: queries and keys are fixed; all; or both.")
    ] = "weights",
    traces: Annotated[str, typer.Option(help="Traces of the objective.")] = "weights,data",
    inputs: Annotated[str, typer.Option(help="Generated tokens: random, smooth.")] = "random",
    seeds: arguments.SeedsOption = "0,1,2",
    rank: Annotated[int, typer.Option(min=1, help="Singular directions s.")] = 4,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="primal.OPTION=VALUE, as primal.eta=1; repeatable."),
    ] = None,
    dim: Annotated[int, typer.Option(min=1, help="Model width.")] = 32,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads.")] = 1,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of a sequence.")] = 64,
    samples: Annotated[int, typer.Option(min=1, help="Sequences, or examples of dev.")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="Steps of Adam.")] = 300,
    lr: Annotated[float, typer.Option(min=1e-9, help="Learning rate.")] = 0.01,
    run: Annotated[
        str, typer.Option(help="A run of primal with saved weights instead: its layers.")
    ] = "",
    store: arguments.StoreOption = Path("runs"),
    out: arguments.OutOption = None,
    as_json: arguments.JsonOption = False,
) -> Answer:
    """Compare the scores of Primal-Attention with the exact singular vectors during training.

    A layer is trained on fixed tokens with the KSVD loss, a task, both, or a control. Shows the
    objective J and the alignment of subspaces. Writes ksvd.md, .csv, .png and .svg.
    """
    from harness.ksvd import Setting
    from harness.records.files import require_writable
    from reports import pages

    arguments.require_layer_fits(tokens, 1 if run else samples, dim, heads)
    setting = Setting(
        _options(set_, rank, dim, heads, tokens), dim, heads, tokens, samples, steps, lr
    )
    axes = {
        "losses": _chosen("loss", losses, LOSSES.split(",")),
        "trained": _chosen("trained part", trained, ["weights", "all"]),
        "traces": _chosen("trace", traces, ["weights", "data"]),
        "inputs": _chosen("input", inputs, ["random", "smooth"]),
        "seeds": arguments.seeds_in(seeds, range(2**31)),
    }
    folder = out or store
    require_writable(folder, str(folder), "give another --out")
    curves: list[KsvdCurve] = []
    for one in _of_run(run, store, samples) if run else _trainings(setting, axes):
        curves.append(one)
        typer.echo(_progress(one))
    files = write_pages(within(folder, pages.ksvd_files(curves)))
    return Answer({"rows": curves, "files": files} if as_json else "")


def _trainings(setting: Any, axes: dict[str, Any]) -> "Iterator[KsvdCurve]":
    from harness.ksvd import training_curves

    return training_curves(setting, **axes)


def _of_run(run: str, store: Path, samples: int) -> "Iterator[KsvdCurve]":
    from harness import weights
    from harness.cli.spectrum import chosen_runs
    from harness.ksvd import run_curves
    from harness.plan import restore
    from harness.records.store import Store

    runs = Store(store)
    (record,) = chosen_runs(runs, [run])
    return run_curves(restore(record.spec), weights.find(runs.weights(record.spec)), samples)


def _progress(one: "KsvdCurve") -> str:
    last = one.states[-1]
    return (
        f"{one.inputs}, {one.trained}, trace {one.trace}, {one.loss}, seed {one.seed}: step "
        f"{last.step}, J {last.objective:.2g}, alignment {last.left:.2f} and {last.right:.2f} "
        f"(random {one.random:.2f})"
    )


def _chosen(what: str, text: str, known: "Sequence[str]") -> list[str]:
    names = arguments.names_in([text])
    if wrong := [name for name in names if name not in known]:
        raise UserError(unknown(what, wrong[0], known))
    return names


def _options(
    set_: "Sequence[str] | None", rank: int, dim: int, heads: int, tokens: int
) -> dict[str, Any]:
    """The options of `primal` that are given.

    Raises:
        UserError: they are of another variant, are unknown or ill-typed, or the rank leaves no
            choice of a subspace.
    """
    from zoo import feature_maps
    from zoo.registry import resolve
    from zoo.variants import variants

    settings = arguments.settings_of(set_)
    if others := sorted({*settings} - {"primal"}):
        raise UserError(f"{others[0]!r} is not the variant; give options of primal")
    given = settings.get("primal", {})
    for name, option in (("trace", "--traces"), ("rank", "--rank")):
        if name in given:
            raise UserError(f"--set primal.{name} is an option of its own; give {option}")
    whole = resolve("primal", variants.find("primal"), given)
    width = feature_maps.width(str(whole.get("feature_map", "cosine")), dim // heads)
    for count, what in ((width, "features"), (tokens, "tokens")):
        if dim % heads == 0 and rank >= count:
            raise UserError(
                f"rank {rank} of {count} {what} spans all singular vectors; give a smaller --rank"
            )
    return {"rank": rank, **{name: value for name, value in whole.items() if name in given}}
