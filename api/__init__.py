"""Scores datasets over HTTP."""

import difficulty_service.base.process_setup  # noqa: F401 - its package configures threads
