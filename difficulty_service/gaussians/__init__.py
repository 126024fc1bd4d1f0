"""Moments, Gaussians and distances, of tensors only."""
