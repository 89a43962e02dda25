"""Claims of performance, each a ratio within one run: `python -m benchmarks` measures them all."""
