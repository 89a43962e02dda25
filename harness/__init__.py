"""Runs variants on tasks, measures them, and stores the records."""
