"""Reads the files that scores are compared with as one table, and writes results."""
