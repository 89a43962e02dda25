"""Pathfinder's images: how long a complete data set takes to generate, and to load.

Run: python -m benchmarks.pathfinder [--images 4000] [--workers 2]
Claim: 200,000 images of 32 x 32 pixels are generated in under 30 minutes on two cores, and all
splits are loaded in under 2 seconds.
"""

import argparse
import json
import os
import tempfile
import time
from unittest.mock import patch

from benchmarks.turns import machine
from tasks.contract import SPLITS
from tasks.data.cache import HOME_VARIABLE
from tasks.lra.pathfinder import Pathfinder

COMPLETE = 200_000
MINIMUM = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.images < MINIMUM:
        parser.error(f"--images {arguments.images} is too few; give at least {MINIMUM}")
    print(json.dumps({**machine(), "cores": os.cpu_count()}))

    start = time.perf_counter()
    Pathfinder().draw(0)
    print(json.dumps({"seconds to compile": time.perf_counter() - start}))

    tenth = arguments.images // 10
    task = Pathfinder(train=arguments.images - 2 * tenth, dev=tenth, test=tenth)
    for workers in sorted({1, arguments.workers}):
        start = time.perf_counter()
        task.generate_by(workers)
        seconds = time.perf_counter() - start
        row = {
            "workers": workers,
            "images a second": arguments.images / seconds,
            f"minutes for {COMPLETE}": COMPLETE / arguments.images * seconds / 60,
        }
        print(json.dumps(row))

    with tempfile.TemporaryDirectory() as home, patch.dict(os.environ, {HOME_VARIABLE: home}):
        task.load("train")
        start = time.perf_counter()
        for split in SPLITS:
            task.load(split)
        seconds = time.perf_counter() - start
    row = {
        "seconds to load": seconds,
        f"seconds for {COMPLETE}": COMPLETE / arguments.images * seconds,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
