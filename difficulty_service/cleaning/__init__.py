"""What was decided about samples, taken into the dataset or to another tool."""
