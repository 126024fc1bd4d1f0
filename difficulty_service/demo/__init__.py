"""A small real dataset that ships with the package, and pictures of its scores."""
