"""Every section of claims by name, in the order of the table: most informative first."""

from importlib import import_module

from benchmarks.claims import CLAIMS
from benchmarks.runner import REGISTERED

for _name in ("leaderboard_statistics", "inputs", "layers", "processes", "profiles", "steps"):
    import_module(f"benchmarks.{_name}")

SECTIONS = {name: REGISTERED[name] for name in CLAIMS}

LONG = ("workers",)
"""Those that take minutes: measured only if they are named."""
