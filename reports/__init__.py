"""Reads records of runs, and writes tables, figures and pages from nothing else."""
