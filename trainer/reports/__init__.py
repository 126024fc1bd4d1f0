"""What a person reads about runs: tables and diagrams."""
