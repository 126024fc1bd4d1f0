"""What everything else stands on: errors, files written whole, checksums, threads, processes."""
