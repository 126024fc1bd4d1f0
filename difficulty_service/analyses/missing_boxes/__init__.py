"""Regions of images that look like an object and have no box."""

from difficulty_service.base.plugins import Analysis

ANALYSIS = Analysis(
    "missing_boxes",
    commands=("difficulty_service.analyses.missing_boxes.command:missing",),
    functions=("difficulty_service.analyses.missing_boxes.function:missing_boxes",),
    abilities={"find": "difficulty_service.analyses.missing_boxes.find:find_missing"},
)
