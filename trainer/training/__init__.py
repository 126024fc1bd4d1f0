"""The training loop and what it works with."""
