"""How hard is each sample? Images in, one difficulty score per sample out, as Parquet."""
