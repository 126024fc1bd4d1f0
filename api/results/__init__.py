"""What is read of a finished job."""
