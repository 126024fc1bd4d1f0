"""Which tags of samples are wrong, and which are missing."""
