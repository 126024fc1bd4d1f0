"""`difficulty watch`: a dataset that changes in, scores that follow it out."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from cyclopts import Parameter

from difficulty_service.base.contract import Found
from difficulty_service.cli.console import err, print_warnings, without
from difficulty_service.cli.console import out as console
from difficulty_service.cli.extract import build_request, require_compatible
from difficulty_service.cli.progress import exit_when_interrupted
from difficulty_service.cli.score_result import ScoreResult
from difficulty_service.cli.wrong_call import WrongCall
from difficulty_service.command_options import WatchOptions
from difficulty_service.option_rules import chosen_in
from difficulty_service.options import ExtractionOptions, JsonOption, ScoringOptions

if TYPE_CHECKING:
    from difficulty_service.watching import FailedRound, Round


def watch(
    source: Annotated[str, Parameter("DATASET")],
    /,
    *,
    out: Path,
    gaussians: Path | None = None,
    added: Path | None = None,
    metrics: Path | None = None,
    pace: WatchOptions = WatchOptions(),
    scoring: ScoringOptions = ScoringOptions(),
    output: JsonOption = JsonOption(),
    extraction: ExtractionOptions = ExtractionOptions(),
) -> None:
    """Scores a dataset, and again whenever files come or go, or somebody decided something.

    Only new images are read; all samples are scored anew. Ctrl-C or SIGTERM ends it, and the same
    command goes on.

    Args:
        source: Dataset to watch: a folder, an address such as s3://bucket/photos, or a pattern.
        out: Score file to write in each round: its name ends in .parquet, .csv or .jsonl.
        gaussians: Score against Gaussians that `difficulty fit` wrote.
        added: Also write the scores of what the last round that added something has added, for
            `difficulty report`; its name ends as that of --out does.
        metrics: Also write metrics for the textfile collector of Prometheus; its name ends in
            .prom.
    """
    from difficulty_service.scores.file import require_score_file_name
    from difficulty_service.scores.fitted_gaussians import FittedGaussians

    require_compatible(chosen_in(scoring) | ({"gaussians"} if gaussians else set()))
    require_score_file_name(out)
    if added is not None:
        require_score_file_name(added)
        if added.resolve() == out.resolve():
            raise WrongCall(f"--added {added} is the score file of --out, too")
    if metrics is not None and (metrics.suffix != ".prom" or not metrics.parent.is_dir()):
        raise WrongCall(
            f"--metrics {metrics}: name a file that ends in .prom in the folder that the collector "
            "reads"
        )
    from difficulty_service.pipeline import ScoreRequest
    from difficulty_service.scores.file import write_scores
    from difficulty_service.watching import Round, gauges_of, load_prometheus, write_gauges
    from difficulty_service.watching import watch as run_watch

    if metrics is not None:
        load_prometheus()  # before the first round
    fitted = None if gaussians is None else FittedGaussians.load(gaussians)
    request = build_request(source, out.with_suffix(".features"), extraction)
    last, ended = None, 0.0
    goes_on = "stopped; the same command goes on where this one stopped"
    with exit_when_interrupted(goes_on), without(*([console] if output.json_ else [])):
        err.print(f"watching {source}", markup=False)
        for happened in run_watch(request, ScoreRequest(out, scoring, fitted), pace):
            if isinstance(happened, Round):
                last, ended = happened, time.time()
                new = happened.added.samples
                if added is not None and len(new.table):
                    write_scores(added, new.table, new.provenance)
                report_round(happened, out)
                if output.json_:
                    result = WatchResult.of(happened, out)
                    sys.stdout.write(result.model_dump_json() + "\n")
                    sys.stdout.flush()
            else:
                report_failure(happened)
            if metrics is not None and last is not None:
                failures = 0 if happened is last else happened.number
                write_gauges(metrics, gauges_of(last, failures, ended), source)


def report_round(done: "Round", out: Path) -> None:
    """Prints what a round found, in a few lines."""
    from difficulty_service.base.wording import count_of, is_or_are
    from difficulty_service.watching import MOST_LISTED

    summary, extracted, added = done.scored.labels, done.scored.extracted, done.added
    print_warnings(summary.warnings if done.number == 1 else ())
    parts = [f"{count_of(len(added.samples.table), summary.noun)} new"]
    wrong = added.wrong
    if wrong is not None and len(wrong):
        parts.append(f"{len(wrong):,} of them almost certainly labelled wrong")
    if added.unlike is not None:
        parts.append(f"{added.unlike:.0%} unlike what was there (5 % by chance)")
    if added.num_removed:
        parts.append(f"{added.num_removed:,} gone")
    if extracted.bad_images:
        number = len(extracted.bad_images)
        parts.append(f"{number:,} {is_or_are(number)} unreadable, see {extracted.errors_file}")
    moment = datetime.now().astimezone().strftime("%H:%M:%S")
    console.print(
        f"{moment} round {done.number}: {'; '.join(parts)}; {summary.num_scored:,} scores in {out}",
        markup=False,
    )
    if wrong is not None and done.number > 1:
        for row in wrong.slice(0, MOST_LISTED).to_pylist():
            console.print(
                f"  {row['sample_id']}: {row['label_name']} → {row['suggested_label_name']}",
                markup=False,
            )


def report_failure(failed: "FailedRound") -> None:
    """Prints why a round could not be, once for several in a row."""
    if failed.number == 1:
        err.print(f"warning: {failed.error}; the scores stay, and it is tried again", markup=False)


class WatchResult(Found):
    """What `difficulty watch --json` prints of a round, in a line."""

    version: Literal[1] = 1
    """Version of this object: another number where a name goes or changes its meaning."""

    round: int
    """Number of the round, from 1."""

    ended: str
    """When it ended, in ISO 8601."""

    seconds: float
    """Wall-clock seconds that it took."""

    added: int
    """Samples with a score that had none before."""

    removed: int
    """Samples that have no score any more."""

    added_unlike: float | None
    """Share of the added samples that is farther from all samples than 95 % of those before; null
    without either."""

    added_wrong: list[dict[str, Any]] | None
    """Up to 10 added samples with a label that is almost certainly wrong, the surest first:
    `sample_id`, `label_name`, `suggested_label_name`, `p_wrong`; null without `p_wrong`."""

    scores: ScoreResult
    """All samples, as `difficulty score --json` prints it."""

    @classmethod
    def of(cls, done: "Round", out: Path) -> Self:
        """What a round found."""
        from difficulty_service.watching import MOST_LISTED

        wrong = done.added.wrong
        shown = ["sample_id", "label_name", "suggested_label_name", "p_wrong"]
        return cls(
            round=done.number,
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
            seconds=round(done.seconds, 3),
            added=len(done.added.samples.table),
            removed=done.added.num_removed,
            added_unlike=done.added.unlike,
            added_wrong=None
            if wrong is None
            else wrong.select(shown).slice(0, MOST_LISTED).to_pylist(),
            scores=ScoreResult.of(done.scored.labels, out, None, done.scored.extracted),
        )
