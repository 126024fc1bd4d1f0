"""Whether scores mean anything: compared with other knowledge, other scores and words."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "audit",
    commands=(
        "difficulty_service.analyses.audit.command:audit",
        "difficulty_service.analyses.audit.comparison_command:compare_scores",
        "difficulty_service.analyses.audit.explain_command:explain",
    ),
    functions=(
        "difficulty_service.analyses.audit.comparison_function:compare_scores",
        "difficulty_service.analyses.audit.explain_function:explain",
    ),
)
