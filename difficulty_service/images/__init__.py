"""From an encoded image to the tensor that a backbone takes."""
