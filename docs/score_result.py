"""Writes the keys of what `--json` prints in docs/commands.md, from their models.

Run: python docs/score_result.py
"""

from pathlib import Path

from pydantic import BaseModel

from difficulty_service.analyses.backbones.backbone_trial import (
    BackboneTrial,
    NotTried,
    TriedBackbone,
)
from difficulty_service.analyses.leaks.comparison import LeakResult, SetResult
from difficulty_service.analyses.leaks.recall import ListsResult
from difficulty_service.analyses.selection.comparison import SelectResult
from difficulty_service.analyses.versions.comparison import ClassShift, DiffResult
from difficulty_service.bodies.missing_boxes import MissingResult
from difficulty_service.cli.score_result import KINDS, Labels, ScoreResult
from docs.marked_parts import with_parts

PAGE = Path(__file__).with_name("commands.md")


def page() -> str:
    """The page with the present keys."""
    kinds = ", ".join(f"`{kind}`" for kind in KINDS)
    keys = _keys(ScoreResult) + _keys(Labels, "labels.")
    trial = _keys(BackboneTrial) + _keys(TriedBackbone, "tried[].")
    trial += _keys(NotTried, "not_tried[].")
    leaks = _keys(LeakResult) + _keys(SetResult, "tests[].")
    leaks += _keys(ListsResult, "tests[].lists.")
    parts = {"keys": keys, "kinds": f"{kinds}\n", "leaks": leaks, "trial": trial}
    parts["select"] = _keys(SelectResult)
    parts["missing"] = _keys(MissingResult)
    parts["diff"] = _keys(DiffResult) + _keys(ClassShift, "classes[].")
    return with_parts(PAGE, "score_result.py", parts)


def _keys(model: type[BaseModel], prefix: str = "") -> str:
    return "".join(
        f"- `{prefix}{name}`: {' '.join((field.description or '').split())}\n"
        for name, field in model.model_fields.items()
    )


if __name__ == "__main__":
    PAGE.write_text(page())
