"""Do the scores mean anything? They are compared with votes, flags, labels and errors."""
