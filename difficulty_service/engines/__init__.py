"""Who runs the shards."""
