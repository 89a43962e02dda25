"""Synthetic tasks, which test what a mechanism can compute: generated at any length."""
