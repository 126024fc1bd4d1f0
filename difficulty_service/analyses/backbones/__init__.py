"""Which backbone suits a dataset."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "backbones",
    functions=("difficulty_service.analyses.backbones.function:try_backbones",),
    abilities={"try": "difficulty_service.analyses.backbones.command:run_trial"},
)
