"""Evaluation of scores against votes, flags, labels or errors of a classifier."""
