"""The score file: what writes it, reads it, and combines several."""
