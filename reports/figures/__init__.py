"""Figures of boards and of locality studies, drawn with matplotlib."""
