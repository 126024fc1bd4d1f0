"""Moments, Gaussians and what follows from them; arrays only."""
