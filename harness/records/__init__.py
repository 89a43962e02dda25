"""Specifications, records and their store; nothing here imports torch."""
