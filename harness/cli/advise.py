"""`harness advise`: recommend rows of a suite, from records."""

from pathlib import Path

from harness import arguments
from harness.cli.process import Answer
from zoo.registry import UserError


def advise(
    needs: str, length: str = "4k", pass_: str = "train", memory: str = "", suite: str = "laptop",
    store: Path | None = None, why: bool = False,
) -> Answer:  # fmt: skip
    """Recommend a variant for a length.

    It names those that no other beats in accuracy, time and memory at once.

    Costs are of the form of the questions, causal or bidirectional. Nothing is extrapolated:
    beyond the measured lengths the nearest one counts.

    Args:
        needs: Questions of one form, or what their names begin or else end with: recall.
        length: Tokens of a sample: 4096 or 16k.
        pass_: train, forward, prefill or decode.
        memory: The most peak memory of a sample, as 2GiB, in decoding with the state; by default
            any.
        suite: NAME, NAME@VERSION or a TOML file.
        store: Records in addition to the published ones.
        why: Print the reasons, and what was left out.
    """
    from reports.advice import advice_text, bytes_in
    from reports.api import ask

    try:
        limit = bytes_in(memory) if memory else None
    except ValueError:
        raise UserError(f"--memory {memory!r} is not an amount; give for example 2GiB") from None
    allowed = range(1, arguments.LONGEST + 1)
    lengths = arguments.integers_in("--length", length, allowed, "16k")
    if len(lengths) > 1:
        raise UserError(f"--length {length!r} is more than one length; give one")
    table, query, result = ask(
        arguments.names_in([needs]), pass_, lengths[0], limit, suite=suite, store=store
    )
    document = {"query": query, "setting": table["setting"], **result}
    return Answer(advice_text(table, query, result, why=why), document)
