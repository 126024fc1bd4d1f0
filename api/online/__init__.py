"""Single images, scored at once."""
