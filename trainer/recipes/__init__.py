"""Recipes that ship with the package, and the reader and checks of recipes."""
