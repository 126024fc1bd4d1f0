"""The trainer from Python: recipes whose parts are objects of the calling program."""
