"""Wrong and missing tags, where a sample has any number of them."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "tags",
    commands=("difficulty_service.analyses.tags.command:tags",),
    functions=("difficulty_service.analyses.tags.function:tags",),
    abilities={
        "judge": "difficulty_service.analyses.tags.dataset:score_dataset_tags",
        "report": "difficulty_service.analyses.tags.command:report_tags",
        "revise": "difficulty_service.analyses.tags.scores:revise_tags",
    },
)
