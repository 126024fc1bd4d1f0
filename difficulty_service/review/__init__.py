"""What a person does with scores: looks at them, marks samples, and cleans the data."""
