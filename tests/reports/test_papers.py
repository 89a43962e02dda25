import hashlib
from importlib import resources

import pytest

from reports.papers import published

DIGESTS = {
    "d4rl_return.csv": "90235261101b9797",
    "lra_accuracy.csv": "ce74e2c47e311aa6",
    "lra_cost.csv": "f7d415335ec99f0e",
    "uea_accuracy.csv": "89d57c4ea4789050",
}
"""Of tables that were compared with the paper, line by line; two of its averages are misprinted."""


def test_the_published_tables_are_those_that_were_compared_with_the_paper():
    folder = resources.files("reports").joinpath("published")
    result = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for file in folder.iterdir()
        if file.name.endswith(".csv")
    }
    assert result == DIGESTS


@pytest.mark.parametrize(
    ("key", "attention", "expected"),
    [
        ("text@2", "softmax", {"%": "65.0", "s/1K steps": "694.8", "GB": "21.24"}),
        ("retrieval@1", "softmax+primal", {"%": "81.0", "s/1K steps": "546.5", "GB": "18.59"}),
        ("image@1", "yoso", {"%": "39.8"}),
        ("uea-pems-sf@1", "softmax+primal", {"%": "90.2"}),
        ("text@2[max_len=512]", "softmax", {}),
        ("text@1", "softmax", {}),
        ("text@2, blocks of 32 shuffled", "softmax", {}),
        ("text@2", "softmax-lib", {}),
    ],
)
def test_published_numbers_belong_to_the_published_task_and_variant_alone(key, attention, expected):
    result = published(key, attention)
    assert {unit: number.value for unit, number in result.items()} == expected
