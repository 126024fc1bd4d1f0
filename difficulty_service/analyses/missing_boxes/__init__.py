"""Regions of images that look like an object and have no box."""
