"""The process that claims jobs and runs them."""
