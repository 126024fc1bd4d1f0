"""The decisions of people about samples: the record of one, and the files that keep them."""
