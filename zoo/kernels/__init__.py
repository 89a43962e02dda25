"""Fused kernels; each stands beside the plain PyTorch twin that defines it."""
