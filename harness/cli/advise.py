"""`harness advise`: which rows of a suite suit a purpose, from records alone."""

from dataclasses import dataclass
from pathlib import Path

from harness import arguments
from harness.cli.cost import LONGEST
from harness.cli.process import Answer
from zoo.registry import UserError


@dataclass(frozen=True, kw_only=True)
class AdviseOptions:
    """The options of `harness advise`.

    Attributes:
        length: Tokens of a sample: 4096 or 16k.
        pass_: train, forward, prefill or decode.
        needs: Questions of one form, or what their names begin with: recall.
        memory: The most peak memory of a sample, as 2GiB, in decoding with the state; by default
            any.
        suite: NAME, NAME@VERSION or a TOML file.
        store: Records in addition to the published ones.
        as_json: Print one JSON document; progress goes to stderr.
    """

    length: str
    pass_: str
    needs: str
    memory: str = ""
    suite: str = "laptop"
    store: Path | None = None
    as_json: bool = False


def advise(options: AdviseOptions) -> Answer:
    """Say which variants to use: those that no other beats in accuracy, time and memory at once.

    Costs are of the form of the questions, causal or bidirectional. Nothing is extrapolated: what
    is not measured is named, with the command that measures it.
    """
    from harness.advice import ask
    from reports.advice import advice_text, bytes_in

    try:
        memory = bytes_in(options.memory) if options.memory else None
    except ValueError:
        raise UserError(
            f"--memory {options.memory!r} is not an amount; give for example 2GiB"
        ) from None
    lengths = arguments.integers_in("--length", options.length, range(1, LONGEST + 1), "16k")
    if len(lengths) > 1:
        raise UserError(f"--length {options.length!r} is more than one length; give one")
    needs = arguments.names_in([options.needs])
    table, query, result = ask(
        needs, options.pass_, lengths[0], memory, suite=options.suite, store=options.store
    )
    if options.as_json:
        return Answer({"query": query, "setting": table["setting"], **result})
    return Answer(advice_text(table, query, result))
