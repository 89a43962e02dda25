"""Figures of boards and tables, drawn with matplotlib."""
