"""Does knowing the difficulty help? Trains classifiers that read `scores.parquet`."""
