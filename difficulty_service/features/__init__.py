"""Features on disk and in memory, and what they were made of."""
