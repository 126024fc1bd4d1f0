"""The Python interface: what `import difficulty_service` offers."""
