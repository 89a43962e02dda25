"""Reads records of runs, and writes tables, figures and pages from them and published numbers."""
