"""What changed from one version of a dataset to the next."""
