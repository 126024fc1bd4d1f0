"""Recipes that ship with the package, and what reads and checks a recipe."""
