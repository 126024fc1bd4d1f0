"""The score file: its columns, what it says of its origin, and its reader."""
