"""Files that commands write: over nothing that is read, and with what to do with them."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from difficulty_service.cli.console import out
from difficulty_service.cli.wrong_call import WrongCall

if TYPE_CHECKING:
    import pyarrow as pa


def require_writable(
    read: Sequence[Path | None],
    *,
    tables: Sequence[Path | None] = (),
    marks: Sequence[Path | None] = (),
    pages: Sequence[Path | None] = (),
    others: Sequence[Path | None] = (),
) -> None:
    """Refuses results that cannot be written, or would be written over something.

    Args:
        read: Files and folders that the command reads.
        tables: Results that end in .parquet, .csv or .jsonl.
        marks: Results that end in .csv.
        pages: Results that end in .html.
        others: Results whose endings the caller has checked.

    Raises:
        WrongCall: A result is written over what is read, over decisions, or over another result.
        DifficultyError: A result has an ending of another kind, or no folder to lie in.
    """
    from difficulty_service.base.errors import CleaningError, DatasetError
    from difficulty_service.base.files import require_output_file
    from difficulty_service.base.tables import WRITERS
    from difficulty_service.marks.review_folder import ReviewFolder

    sources = [path.resolve() for path in read if path is not None]
    decided = [ReviewFolder(path).file for path in sources]
    results = [path.resolve() for path in (*tables, *marks, *pages, *others) if path is not None]
    if len(set(results)) < len(results):
        raise WrongCall("two results would be written to the same file")
    for path in results:
        if any(path == each or path.is_relative_to(each) for each in sources):
            raise WrongCall(f"{path} would be overwritten, but is read")
        if path in decided:
            raise WrongCall(f"{path} holds decisions of people, and would be overwritten")
    for each in filter(None, tables):
        require_output_file(each, WRITERS, DatasetError)
    for each in filter(None, marks):
        require_output_file(each, (".csv",), CleaningError)
    if any(pages):
        from difficulty_service.pages.html_page import require_page_file

        for each in filter(None, pages):
            require_page_file(each)


def write_drops(path: Path, marks: "pa.Table", scored: Path, purpose: str, cleaned: str) -> None:
    """Writes marks that drop samples, and prints the command that applies them.

    Args:
        scored: A score file of the samples, or their features.
        purpose: What the command is for.
        cleaned: Name of the file that it writes, without its ending.
    """
    from difficulty_service.base.wording import count_of
    from difficulty_service.marks.files import write_marks
    from difficulty_service.marks.record import from_table

    write_marks(path, from_table(marks))
    command = clean_command(scored, path, cleaned)
    out.print(f"{count_of(len(marks), 'mark')} in {path}; to {purpose}: {command}")


def clean_command(scored: Path, marks: Path, cleaned: str = "cleaned") -> str:
    """The command that applies marks; Parquet holds images of every kind of dataset.

    Args:
        scored: A score file of the samples, or their features, perhaps with one beside them.
        cleaned: Name of the file that it writes, without its ending.
    """
    files = filter(_holds_scores, (scored, scored.with_suffix(".parquet")))
    scores = next((shlex.quote(str(path)) for path in files), "SCORES")
    return f"difficulty clean {scores} --marks {shlex.quote(str(marks))} --out {cleaned}.parquet"


def _holds_scores(path: Path) -> bool:
    from difficulty_service.base.errors import ScoreFileError
    from difficulty_service.scores.file import read_score_schema

    try:
        read_score_schema(path)
    except ScoreFileError:
        return False
    return True
