"""Engines run the shards of a dataset: on this machine, or on a Ray cluster."""
