"""Which backbone suits a dataset: how probable its labels are by the features of each."""
