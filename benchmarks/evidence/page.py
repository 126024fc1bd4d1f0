"""Writes docs/evidence.md, a summary of the study, from its tables alone.

    python -m benchmarks.evidence.page

The tables are docs/evidence/*.csv, which `make evidence` and `make study-pruning` write.
What has not run has no row there, and the page says so.
"""

from pathlib import Path

from benchmarks.evidence import page_of_encoders, page_of_labels, page_of_others, page_of_tasks
from benchmarks.evidence.page_text import Tables
from difficulty_service.base.files import replacing

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, TABLES, IMAGES = "evidence.md", "evidence", "images"
SECTIONS = (
    page_of_labels.in_short,
    page_of_labels.wrong_labels,
    page_of_labels.planted,
    page_of_labels.kinds,
    page_of_labels.people,
    page_of_labels.views,
    page_of_labels.counts,
    page_of_encoders.encoders,
    page_of_others.paper,
    page_of_others.training,
    page_of_others.choices,
    page_of_tasks.pruning,
    page_of_tasks.selection,
    page_of_tasks.tags,
    page_of_tasks.objects,
    page_of_tasks.copies,
    page_of_others.repeat,
)


def page(tables: Tables) -> str:
    """The whole page."""
    return "\n".join(filter(None, (section(tables) for section in SECTIONS)))


def write_page(docs: Path) -> None:
    """Writes the page.

    Args:
        docs: Folder of the page, in which the tables lie in a folder.
    """
    with replacing(docs / PAGE) as temporary:
        temporary.write_text(page(Tables(docs / TABLES)), encoding="utf-8")


if __name__ == "__main__":
    write_page(DOCS)
