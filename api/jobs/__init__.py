"""Jobs: rows, queue, files, and what a request may name."""
