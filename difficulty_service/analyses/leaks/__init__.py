"""Copies of samples across the splits of a dataset."""
