"""The report: one page, in one file, to look at the scored images and mark wrong labels."""
