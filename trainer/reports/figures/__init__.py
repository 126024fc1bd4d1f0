"""The figures of the papers, drawn from runs and score files: one module per source."""
