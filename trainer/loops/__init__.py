"""Difficulty in the training loops of other packages: one `attach` for each."""
