"""Lets tests import the benchmarks, which are no part of the installed package."""

import sys
from pathlib import Path

# Last, so that the installed packages are tested and not the checkout's.
sys.path.append(str(Path(__file__).parents[2]))
