"""Which label several annotators of a sample mean, and how reliable each is."""
