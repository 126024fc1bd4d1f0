"""From difficulty scores to the weight of each training sample."""
