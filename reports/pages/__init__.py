"""Pages made from records."""
