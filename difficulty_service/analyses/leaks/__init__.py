"""Samples of test sets that are in the training set, too."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "leaks",
    commands=("difficulty_service.analyses.leaks.command:leaks",),
    functions=("difficulty_service.analyses.leaks.function:leaks",),
    comparison="difficulty_service.analyses.leaks.comparison:LEAKS",
)
