"""A small real dataset that ships with the package, and a picture of its scores."""
