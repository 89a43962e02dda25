"""Where the cells of a grid run: in this process, in workers, on a Ray cluster, under Slurm."""
