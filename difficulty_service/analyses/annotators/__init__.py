"""A consensus of several labels per sample, and how often each annotator errs."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "annotators",
    commands=("difficulty_service.analyses.annotators.command:annotators",),
    functions=("difficulty_service.analyses.annotators.function:annotators",),
)
