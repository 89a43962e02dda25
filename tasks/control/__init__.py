"""Continuous control from recorded trajectories."""
