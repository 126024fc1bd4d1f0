"""Scorers: features and labels in, one score per sample out; larger is harder."""
