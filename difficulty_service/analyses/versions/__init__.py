"""What differs between two versions of a dataset."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "versions",
    commands=("difficulty_service.analyses.versions.command:diff",),
    functions=("difficulty_service.analyses.versions.function:diff",),
    comparison="difficulty_service.analyses.versions.comparison:DIFF",
)
