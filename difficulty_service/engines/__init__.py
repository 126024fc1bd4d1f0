"""Engines: where the shards of a dataset are extracted."""
