"""Tables of costs and of reproduced results."""

from reports.tables.cost import cost_rows
from reports.tables.terminal import cost_summary, reproduction_summary, results_summary

__all__ = ["cost_rows", "cost_summary", "reproduction_summary", "results_summary"]
