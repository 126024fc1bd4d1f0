"""Features on disk: a folder with one Arrow file per shard."""
