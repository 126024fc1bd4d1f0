"""What several backbones say about the same samples, as one."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "consensus",
    commands=("difficulty_service.analyses.consensus.command:consensus",),
    functions=("difficulty_service.analyses.consensus.function:consensus",),
)
