"""Tasks that tell attentions apart: drawn from a seed, of any length, with a known answer."""
