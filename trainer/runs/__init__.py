"""One command's whole run: training, evaluation."""
