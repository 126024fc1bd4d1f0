"""From features to Gaussians and to the rows of a score file."""
