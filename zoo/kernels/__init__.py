"""Functions that several mechanisms share, computed per head; no layers, no parameters."""
