"""One folder for each question beyond scoring: what is computed, its result and its page."""
