"""From a score file to the weight of each training sample, and to the trust in its label."""
