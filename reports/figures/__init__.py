"""Figures of tables, drawn with matplotlib."""
