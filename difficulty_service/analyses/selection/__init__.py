"""Samples to label next, or to keep."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "selection",
    commands=("difficulty_service.analyses.selection.command:select",),
    functions=("difficulty_service.analyses.selection.function:select",),
    comparison="difficulty_service.analyses.selection.comparison:SELECT",
)
