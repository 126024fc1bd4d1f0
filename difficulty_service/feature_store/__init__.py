"""Features on disk: a folder with one Parquet part per shard."""
