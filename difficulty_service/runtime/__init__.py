"""Threads, and how a process is set up before it computes."""
