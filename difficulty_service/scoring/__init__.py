"""From features to scores: labels, marks, Gaussians, and what is written of them."""
