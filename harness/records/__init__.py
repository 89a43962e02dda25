"""Specifications, records and the store that holds them: free of torch."""
