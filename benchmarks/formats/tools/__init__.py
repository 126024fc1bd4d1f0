"""Programs that open exports; in some of them, people decide about the samples."""
