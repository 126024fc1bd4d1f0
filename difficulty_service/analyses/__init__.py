"""Questions about a dataset beyond its scores, a folder each; `base.analyses` lists them."""
