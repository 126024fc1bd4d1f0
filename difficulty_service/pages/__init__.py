"""What all pages are made of: templates, styles, scripts, and the card of a sample."""
