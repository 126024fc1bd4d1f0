"""Reports about runs: tables and diagrams."""
