"""What stands between a request and its route: keys, limits, problems."""
