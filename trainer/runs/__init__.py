"""Complete runs: training and evaluation."""
