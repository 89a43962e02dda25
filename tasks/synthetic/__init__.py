"""Tasks that show what a mechanism can compute: drawn from a seed, at any length."""
