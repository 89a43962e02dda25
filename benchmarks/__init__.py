"""Performance claims, each a script that prints what it measured; none is a test."""
