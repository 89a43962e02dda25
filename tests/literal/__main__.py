"""The accuracy of the literal model: `harness run`, with that model in place of the project's.

Run: python -m tests.literal --task image --attention softmax+primal --seeds 0,1,2
Claim: `primal` and `softmax+primal` of the zoo are within 2 points of it, means over 3 seeds.

The records name the variant of the zoo and its sources, though the literal model was trained: so
they are in a separate store, and are not published beside others.
"""

import sys
from unittest.mock import patch

from harness.cli import main
from tests.literal.build import build

if __name__ == "__main__":
    with patch("harness.runner.build_model", build):
        main(["run", *sys.argv[1:], "--no-cost", "--workers", "1", "--store", "literal"])
