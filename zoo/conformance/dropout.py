"""The claim that dropout of attention weights has an effect."""

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import distance, output, random_tokens, seeded


def check_dropout(configuration: Configuration) -> Outcome:
    """With dropout, the training output from one seed is another, if `drops_weights` says so."""
    x, outputs = random_tokens(2), []
    for dropout in (0.0, 0.5):
        layer = configuration.layer(dropout=dropout)
        with seeded(5):
            outputs.append(output(layer, x))
    change, declared = distance(*outputs), configuration.variant.drops_weights
    return Outcome(
        (change > 0.0) == declared,
        f"outputs change by {change:.2g} with dropout; drops_weights={declared}",
    )
