"""Tables, figures and pages from records of runs, next to published numbers."""
