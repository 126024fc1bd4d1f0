"""Commands of the trainer, one file each."""
