"""Figures of leaderboards and tables, drawn with matplotlib."""
