"""Moments, Gaussians and distances, computed on arrays."""
