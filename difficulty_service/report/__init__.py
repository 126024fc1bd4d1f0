"""The report: one page, in one file, on which people look at the scored images and mark them."""
