"""Which samples to label or to keep."""
