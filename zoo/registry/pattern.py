"""The text of a stack of layers, as `A*3+B` or `(A+B)*2`: see `zoo.composition`."""

import re
from itertools import accumulate

from zoo.registry.messages import UserError

TOKEN = re.compile(r"[+*()]|[^+*()]+")

MOST_NESTED = 32  # Parentheses within each other, at most
MOST_LAYERS = 1024  # Layers that a text may give, at most


def layers_in(text: str) -> tuple[str, ...]:
    """The variants of the layers that a text gives; the names are not looked up."""
    if max(accumulate((c == "(") - (c == ")") for c in text), default=0) > MOST_NESTED:
        raise UserError(
            f"attention {text[:40]!r}... nests over {MOST_NESTED} parentheses; nest fewer"
        )
    tokens = [token.strip() for token in TOKEN.findall(text)]
    layers = _sum(tokens, text)
    if tokens:
        raise UserError(f"attention {text!r}: unexpected {tokens[0]!r}; give for example A*3+B")
    return layers


def _sum(tokens: list[str], text: str) -> tuple[str, ...]:
    layers = _term(tokens, text)
    while tokens and tokens[0] == "+":
        del tokens[0]
        layers += _term(tokens, text)
    return layers


def _term(tokens: list[str], text: str) -> tuple[str, ...]:
    first = tokens.pop(0) if tokens else ""
    if first == "(":
        layers = _sum(tokens, text)
        if not tokens or tokens.pop(0) != ")":
            raise UserError(f"attention {text!r}: a parenthesis is not closed; close it")
    elif first in ("", "+", "*", ")"):
        found = repr(first) if first else "the end"
        raise UserError(f"attention {text!r}: {found} in place of a variant; give one, as in A*3+B")
    else:
        layers = (first,)
    while tokens and tokens[0] == "*":
        count = tokens[1] if len(tokens) > 1 else ""
        if not count.isdecimal() or not 1 <= int(count) <= MOST_LAYERS // len(layers):
            raise UserError(f"attention {text!r}: {count!r} is no count of 1 to {MOST_LAYERS} "
                            "layers in all; give for example A*3+B")  # fmt: skip
        del tokens[:2]
        layers *= int(count)
    return layers
