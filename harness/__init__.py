"""Runs variants on tasks, measures them, and keeps the records."""
