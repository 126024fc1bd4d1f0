"""`difficulty score`: a dataset or its features in, a score file out."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from difficulty_service.base.wording import count_of
from difficulty_service.cli.console import err, print_json, without
from difficulty_service.cli.console import out as stdout
from difficulty_service.cli.dry_run import show_reading
from difficulty_service.cli.extract import (
    report_extraction,
    report_runtime,
    report_settled,
    require_compatible,
    show_extraction,
)
from difficulty_service.cli.fit import report_fit
from difficulty_service.cli.report import write_score_report
from difficulty_service.cli.score_report import print_next_steps, report_dataset, report_scores
from difficulty_service.cli.wrong_call import WrongCall, options
from difficulty_service.settings.options import OutputOptions, ScoringOptions
from difficulty_service.settings.run import Run

if TYPE_CHECKING:
    from rich.console import Console

    from difficulty_service.extraction.plan import Plan
    from difficulty_service.marks.review_folder import UndoneRound
    from difficulty_service.scoring.marked_features import MarkedFeatures
    from difficulty_service.scoring.pipeline import ExtractedDataset, ScoredDataset, ScoreRequest
    from difficulty_service.scoring.store import ScoreSummary

T = TypeVar("T")


def score(
    source: Annotated[str, Parameter("STORE|DATASET")],
    /,
    *,
    out: Path | None = None,
    dry_run: bool = False,
    gaussians: Path | None = None,
    labels: Path | None = None,
    marks: Path | None = None,
    undo_round: int | None = None,
    report: Path | None = None,
    scoring: ScoringOptions = ScoringOptions(),
    output: OutputOptions = OutputOptions(),
    run: Run = Run(),
) -> None:
    """Scores how hard each sample is; larger is harder.

    Features of a dataset are extracted first and kept beside the output, so that a second run with
    other statistics reads no image. With --tags, it finds wrong and missing tags instead of wrong
    labels.

    Args:
        source: Features (of `difficulty extract`, .npz, .npy, or Parquet with a column of vectors),
            or a dataset to extract.
        out: Score file to write, ending in .parquet, .csv or .jsonl; not needed with --dry-run.
        dry_run: Print how the dataset would be read (format, classes, files left out); opens no
            image and writes nothing.
        gaussians: Score against Gaussians that `difficulty fit` wrote.
        labels: File of labels for features: .npy, or text with a label on each line; default: in
            the file, or labels.npy beside it.
        marks: Decisions to apply and remember: CSV or Parquet with sample_id, mark and label, or a
            file of Label Studio, CVAT or FiftyOne.
        undo_round: Round of scores to return to: takes back its decisions and all later ones, and
            keeps them in a file for --marks.
        report: Also write a page with the images, as `difficulty report` does.
    """
    if dry_run:
        show_reading(replace(run, source=source, scoring=scoring), output)
        return
    if out is None:
        raise WrongCall(
            "score needs --out: score file to write, ending in .parquet, .csv or .jsonl; --dry-run "
            "needs none"
        )
    from difficulty_service.cli.score_result import (
        Limit,
        ScoreResult,
        require_below,
        require_looks,
    )
    from difficulty_service.features.array_files import is_array_file, open_features
    from difficulty_service.features.description import is_store
    from difficulty_service.features.store import holds_only_shards
    from difficulty_service.marks.files import read_marks
    from difficulty_service.marks.review_folder import ReviewFolder
    from difficulty_service.scoring.fitted_gaussians import FittedGaussians
    from difficulty_service.scoring.pipeline import (
        Callbacks,
        ScoreRequest,
        device_of_features,
        features_beside,
        make_plan,
        score_features,
    )

    run = replace(
        run,
        source=source,
        scoring=scoring,
        gaussians=gaussians,
        labels=labels,
        marks=marks,
        undo_round=undo_round,
    )
    require_compatible(run, output)
    if scoring.tags is not None:
        with without(*muted_consoles(output)):
            score_tags_of(run, out, report)
        return
    limits = [Limit.parse(text) for text in output.fail_above]
    require_files(out, report)
    fitted = None if gaussians is None else FittedGaussians.load(gaussians)
    later = None if marks is None else read_marks(marks, ())
    review = ReviewFolder(out).open(later, undo_round)
    request = ScoreRequest(out, scoring, fitted, review)
    is_file = is_array_file(Path(source))
    if labels is not None and not is_file:
        raise WrongCall(f"--labels needs a file of features, which {source} is not")
    has_features = is_file or is_store(Path(source)) or holds_only_shards(Path(source))
    for limit in limits:
        limit.require_counted(
            scoring,
            fitted=fitted is not None,
            features=has_features,
            texts=run.is_of_texts,
        )
    with without(*muted_consoles(output)):
        if has_features:
            # The words of names are encoded by the file that encoded the images.
            if useless := run.given - {"device", *(["weights"] if scoring.needs_words else [])}:
                raise WrongCall(
                    f"{source} holds features already, so {options(useless)} would change nothing"
                )
            callbacks = Callbacks(
                taken_back=report_undone,
                marked=lambda marked: report_marks(marked, out),
                fitted=lambda fitted: report_fit(fitted, verbose=output.verbose),
            )
            request = replace(
                request,
                weights=run.machine.weights,
                device=device_of_features(run.machine.device),
            )
            store = open_features(Path(source), labels)
            require_looks(limits, store)
            summary = score_features(store, request, callbacks)
            extracted = None
        else:
            plan = make_plan(replace(run, features=features_beside(out, scoring)))
            scored = run_score(plan, request, verbose=output.verbose)
            summary, extracted = scored.found, scored.extracted
        written = report if summary.num_scored else None
        report_all(summary, out, written, verbose=output.verbose)
    result = ScoreResult.of(summary, out, written, extracted)
    if output.json_:
        print_json(result)
    require_below(limits, {"": result})


def require_files(scores: Path, report: Path | None) -> None:
    """Refuses names that files cannot have, before hours of work."""
    from difficulty_service.reports.writing import require_report_file
    from difficulty_service.scores.file import require_score_file_name

    require_score_file_name(scores)
    if report is not None:
        require_report_file(report)


def score_tags_of(run: Run, out: Path, report: Path | None) -> None:
    """Extracts the samples of a table, judges its tags and prints what was found."""
    from difficulty_service.base.analyses import ability
    from difficulty_service.features.description import is_store
    from difficulty_service.scoring.given_tags import open_given_tags
    from difficulty_service.scoring.judged_tags import ScoredTags
    from difficulty_service.scoring.pipeline import features_beside, make_plan

    if is_store(Path(run.source)):
        raise WrongCall(
            f"{run.source} holds features already, and --tags needs the table of the samples; "
            f"difficulty tags {run.source} TABLE judges tags by features"
        )
    require_files(out, report)
    plan = make_plan(replace(run, features=features_beside(out, run.scoring)))
    tags = open_given_tags(run.source, run.scoring, plan.dataset)

    assert tags is not None  # noqa: S101 - the options name some
    judge = partial(ability("tags", "judge"), tags=tags, out=out)
    scored: ScoredTags = run_with_progress(plan, out, judge, verbose=False)
    if report is not None:
        write_score_report(out, report)
    ability("tags", "report")(scored.found, out, report)


def report_all(
    summary: "ScoreSummary", scores: Path, report: Path | None, *, verbose: bool
) -> None:
    """Prints what was found and what to do next; writes the report if there is a file for it."""
    report_scores(summary, scores, verbose=verbose)
    if report is not None:
        write_score_report(scores, report)
    print_next_steps(summary, scores, report)


def muted_consoles(output: OutputOptions) -> list["Console"]:
    """The consoles that a person does not want to see anything on.

    Raises:
        WrongCall: More and less is wanted.
    """
    if output.verbose and (output.json_ or output.quiet):
        raise WrongCall("--verbose prints more and --quiet less, --json for programs: choose one")
    return [
        *([stdout] if output.json_ or output.quiet else []),
        *([err] if output.quiet else []),
    ]


def report_marks(marked: "MarkedFeatures", scores: Path) -> None:
    """Prints how many decisions are remembered, and where."""
    from difficulty_service.marks.review_folder import ReviewFolder

    decisions = count_of(len(marked.applied.remembered), "decision")
    err.print(f"{decisions} remembered in {ReviewFolder(scores).file}")


def report_undone(undone: "UndoneRound") -> None:
    """Prints which decisions were taken back, and where they are."""
    err.print(f"{undone}; --marks {undone.file} gives them again")


def run_score(plan: "Plan", scoring: "ScoreRequest", *, verbose: bool) -> "ScoredDataset":
    """Scores the labels of a dataset with a progress bar and prints what each stage made."""
    from difficulty_service.scoring.pipeline import score_dataset

    run = partial(score_dataset, scoring=scoring)
    return run_with_progress(plan, scoring.out, run, verbose=verbose)


def run_with_progress(
    plan: "Plan",
    out: Path,
    run: Callable[..., T],
    *,
    verbose: bool,
) -> T:
    """Opens a dataset and runs what makes a score file of it; prints what each stage made."""
    from difficulty_service.datasets import open_dataset
    from difficulty_service.scoring.pipeline import Callbacks

    with show_extraction(plan) as bar:

        def on_settled(settled: "Plan") -> None:
            report_settled(settled)
            err.print(f"features go to {plan.out}, scores to {out}")

        def on_extracted(extracted: "ExtractedDataset") -> None:
            bar.close()
            report_extraction(plan, extracted)

        dataset = open_dataset(plan.location, plan.dataset)
        report_dataset(dataset)
        callbacks = Callbacks(
            progress=bar.update,
            settled=on_settled,
            running=report_runtime,
            extracted=on_extracted,
            taken_back=report_undone,
            marked=lambda marked: report_marks(marked, out),
            fitted=lambda fitted: report_fit(fitted, verbose=verbose),
        )
        return run(plan.reporting(bar.download), callbacks=callbacks, dataset=dataset)
