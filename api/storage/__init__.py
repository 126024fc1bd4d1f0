"""Database, tables and the files of results."""
