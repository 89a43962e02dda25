"""What several mechanisms compute with, head by head; no layers, no parameters."""
