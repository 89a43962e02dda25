"""The advisor: which rows of a suite suit a purpose, from records alone."""

from reports.advice.rules import (
    RULES,
    Values,
    advise,
    bytes_in,
    bytes_text,
    label_of,
    setting_of,
)
from reports.advice.table import table
from reports.advice.text import advice_text

__all__ = [
    "RULES", "Values", "advice_text", "advise", "bytes_in", "bytes_text", "label_of",
    "setting_of", "table",
]  # fmt: skip
