"""Datasets that are sent over HTTP."""
