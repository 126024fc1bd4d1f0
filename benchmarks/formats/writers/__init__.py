"""What programs write; runs in their environment, one file a program."""
