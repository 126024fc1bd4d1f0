"""Scores datasets over HTTP."""

import difficulty_service  # noqa: F401 - configures the threads of what is loaded later
