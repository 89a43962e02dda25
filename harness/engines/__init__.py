"""Where the runs of a grid are computed: here, in workers, on a Ray cluster, under Slurm.

An engine is a module of this package, whose `Pool` the decorator `harness.engines.choice.engine`
registers.
"""
