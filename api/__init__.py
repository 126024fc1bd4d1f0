"""Scores datasets over HTTP."""
