"""The report: one page that people look at, with the samples to check."""
