"""Plots of scores with Matplotlib, of the numbers and in the colours of the report."""

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
from PIL import Image

from difficulty_service.base.errors import ConfigError, DifficultyError, ReportError, Setting
from difficulty_service.base.extras import needs_extra
from difficulty_service.base.wording import count_of, did_you_mean
from difficulty_service.datasets.sample import Dataset
from difficulty_service.interface.image_sources import LabelledImages, images_of
from difficulty_service.pages.cards import Pictures, make_cards, read_pictures, with_suggestion
from difficulty_service.pages.charts import densities, scale_of
from difficulty_service.pages.html_page import decimals, report_colours
from difficulty_service.pages.stored_images import ImageSource, match_images, open_images
from difficulty_service.reports.confusions import count_confusions
from difficulty_service.reports.map_points import tier_names
from difficulty_service.reports.sample_columns import shorten_value
from difficulty_service.reports.sections import (
    HISTOGRAM_BINS,
    OUTLINE_BINS,
    SHOWN_CLASSES,
    Order,
    ReportLimits,
    order_for,
    rank_classes,
    select,
)
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.samples import ScoredSamples, to_samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PlotKind: TypeAlias = Literal["histogram", "classes", "pairs", "sheet"]
"""What a plot shows."""

TIER_COLOURS = ("hard", "shade-5", "bar", "line")
"""Colours of the tiers and of what is in none, as the report names them."""

LISTED_PAIRS = 20
SHEET, SHEET_COLUMNS = 24, 6
"""Number of pictures of a sheet, and of those beside each other."""

LONGEST = 28
"""Characters of the name of a class."""

OVERLAP = 1.6
"""Height of an outline, in the distance between two classes."""


@dataclass(frozen=True)
class PlotOptions:
    """Options of a plot; None where they are left at their defaults."""

    n: int | None = None
    order: Order | None = None
    images: LabelledImages | None = None


@dataclass(frozen=True)
class Plot:
    """One kind of plot.

    Attributes:
        draw: Draws samples of a score file into axes; gives sentences about what is not shown.
        options: Names of its options.
        size: Width of the figure in inches, and its height for a number of entries.
    """

    draw: Callable[[ScoreFile, ScoredSamples, PlotOptions, "Axes"], Sequence[str]]
    options: tuple[str, ...]
    size: Callable[[ScoredSamples, PlotOptions], tuple[float, float]]


@needs_extra("Scores.plot", "notebook")
def draw(
    scores: ScoreFile, kind: str, options: PlotOptions, axes: "Axes | None"
) -> tuple["Axes", Sequence[str]]:
    """Draws one kind of plot; gives the axes and sentences; errors as for `Scores.plot`."""
    if kind not in PLOTS:
        raise ConfigError(
            f"there is no plot {kind!r}",
            f"{did_you_mean(str(kind), PLOTS)}the kinds are {', '.join(get_args(PlotKind))}",
            parameter="kind",
        )
    plot = PLOTS[kind]
    for name in ("n", "order", "images"):
        if getattr(options, name) is not None and name not in plot.options:
            raise ConfigError(f"the plot {kind!r} has no option {name}", "leave it out")
    if options.n is not None and options.n < 1:
        raise ConfigError(f"{options.n} entries are nothing to draw", "give n=1 or more")
    samples = to_samples(scores)
    if not rank_classes(samples):
        raise ReportError("none of the samples has a score, so there is nothing to draw")
    if axes is not None:
        return axes, plot.draw(scores, samples, options, axes)
    from matplotlib import pyplot

    size = plot.size(samples, options)
    figure, axes = pyplot.subplots(figsize=size, layout="constrained")
    try:
        return axes, plot.draw(scores, samples, options, axes)
    except DifficultyError:
        pyplot.close(figure)  # which a notebook would show, empty
        raise


def _histogram(
    _: ScoreFile, samples: ScoredSamples, __: PlotOptions, axes: "Axes"
) -> Sequence[str]:
    colours = report_colours()
    scale = scale_of(samples.rmd)
    if scale is None:
        raise ReportError("all samples have the same difficulty, so there is no histogram")
    known = ~np.isnan(samples.rmd)
    values, tiers = samples.rmd[known].clip(scale.low, scale.high), samples.tiers[known]
    names = [*tier_names(samples), "not judged"]
    if not samples.compares_classes:
        names[2] = "samples"
    shown = [tier for tier in (2, 1, 0, 3) if (tiers == tier).any()]
    axes.hist(
        [values[tiers == tier] for tier in shown],
        bins=HISTOGRAM_BINS,
        range=(scale.low, scale.high),
        stacked=True,
        color=[colours[TIER_COLOURS[tier]] for tier in shown],
        label=[f"{names[tier]}: {(tiers == tier).sum():,}" for tier in shown],
    )
    median = float(np.median(samples.rmd[known]))
    for value, text, colour in (
        (median, "median", "soft"),
        (samples.hardest_cut, "hardest 5 % above", "hard-ink"),
    ):
        label = f"{text} {decimals(value)}"
        axes.axvline(value, color=colours[colour], linestyle=":", linewidth=1.2, label=label)
    axes.set_xlabel(_measure(samples))
    axes.set_ylabel("samples")
    # Matplotlib would search for the best place, and warn where that takes a second.
    axes.legend(loc="upper right", frameon=False, fontsize="small")
    _style(axes)
    return ()


def _classes(
    _: ScoreFile, samples: ScoredSamples, options: PlotOptions, axes: "Axes"
) -> Sequence[str]:
    colours = report_colours()
    _require_classes(samples)
    ranked = rank_classes(samples)
    listed = ranked[: options.n or SHOWN_CLASSES]
    scale = scale_of(samples.rmd)
    if scale is None:
        raise ReportError("all samples have the same difficulty, so classes do not differ")
    edges = np.linspace(scale.low, scale.high, OUTLINE_BINS + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    shapes = densities([samples.rmd[each.rows] for each in listed], scale, OUTLINE_BINS)
    for place, (facts, shape) in enumerate(zip(listed, shapes, strict=True)):
        # A class is drawn in front of the one above it.
        axes.fill_between(
            centres,
            place,
            place - OVERLAP * shape,
            facecolor=colours["bar"],
            edgecolor=colours["soft"],
            linewidth=0.6,
            alpha=0.85,
            zorder=2 + place,
        )
        axes.plot(
            facts.mean, place - 0.12, marker="|", markersize=9, color=colours["hard"], zorder=99
        )
    _label_rows(axes, [f"{_short(each.name)} ({each.num_samples:,})" for each in listed])
    axes.set_xlabel(f"{_measure(samples)}; the line is the mean")
    _style(axes)
    return _left_out(len(listed), len(ranked), "class", "classes")


def _pairs(
    _: ScoreFile, samples: ScoredSamples, options: PlotOptions, axes: "Axes"
) -> Sequence[str]:
    from matplotlib.ticker import MaxNLocator

    _require_classes(samples)
    colours = report_colours()
    counts = count_confusions(samples)
    if not counts:
        raise ReportError("every sample fits its own class best, so no class is taken for another")
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ranked[: options.n or LISTED_PAIRS]
    bars = axes.barh(range(len(listed)), [count for _, count in listed], color=colours["hard"])
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, color=colours["soft"])
    names = [[_short(samples.name_of(label)) for label in pair] for pair, _ in listed]
    _label_rows(axes, [f"{given} → {other}" for given, other in names])
    axes.set_xlabel("samples: label given → class that they look like")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _style(axes)
    return _left_out(len(listed), len(ranked), "pair")


def _sheet(
    scores: ScoreFile, samples: ScoredSamples, options: PlotOptions, axes: "Axes"
) -> Sequence[str]:
    colours = report_colours()
    source = _source(scores, options.images)
    rows, notes = _rows_of_sheet(samples, options)
    ids = [samples.ids[row].as_py() for row in rows]
    pictures = read_pictures(source, ids, ids)
    if not pictures.uris:
        reason = next(iter(pictures.problems.values()), "they are texts")
        raise ReportError(f"none of {len(ids)} images can be shown: {reason}")
    cards = [with_suggestion(card, samples) for card in make_cards(samples, Pictures({}, {}))(rows)]
    axes.set_facecolor(colours["panel"])
    for place, card in enumerate(cards):
        down, across = divmod(place, SHEET_COLUMNS)
        left, top = across * 1.08, down * 1.4
        uri = pictures.uris.get(card.sample_id)
        if uri is not None:
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))
            height, width = (side / max(pixels.shape[:2]) for side in pixels.shape[:2])
            x, y = left + (1 - width) / 2, top + (1 - height) / 2
            axes.imshow(pixels, extent=(x, x + width, y + height, y), interpolation="antialiased")
        lines = [(card.name, "ink")]
        if card.nearest_name is not None:
            lines.append((f"→ {card.nearest_name}", "hard-ink" if card.is_doubtful else "soft"))
        for line, (text, colour) in enumerate(lines):
            axes.text(
                left,
                top + 1.04 + 0.15 * line,
                shorten_value(text, 18),
                color=colours[colour],
                fontsize=7.5,
                verticalalignment="top",
                parse_math=False,
            )
    axes.set_xlim(-0.04, min(len(cards), SHEET_COLUMNS) * 1.08)
    axes.set_ylim(1.4 * math.ceil(len(cards) / SHEET_COLUMNS), -0.04)
    axes.set_axis_off()
    problem = next(iter(pictures.problems.items()), None)
    if problem is not None:
        number = count_of(len(pictures.problems), "picture")
        notes = (*notes, f"{number} cannot be shown, the first is {problem[0]}: {problem[1]}")
    return (*source.warnings, *notes)


def _source(scores: ScoreFile, images: LabelledImages | None) -> ImageSource:
    ids = scores.table["sample_id"].to_pylist()
    found = images_of(images)
    if isinstance(found, Dataset):
        return match_images(scores.provenance, ids, found)
    try:
        return open_images(scores.provenance, ids, found)
    except DifficultyError as error:
        if found is not None:
            raise
        raise ReportError(
            f"a sheet needs the images, which are not there: {error.problem}",
            "give them as ",
            Setting("images"),
            parameter="images",
        ) from error


def _rows_of_sheet(
    samples: ScoredSamples, options: PlotOptions
) -> tuple[Sequence[int], Sequence[str]]:
    """The samples of a sheet, and what to know about their choice."""
    limits = ReportLimits(doubtful=options.n or SHEET)
    ranked = rank_classes(samples)
    order = options.order or order_for(samples, "doubtful")
    rows = select(samples, ranked, limits, order).to_check
    if rows:
        return rows, ()
    if options.order is not None:
        raise ReportError(
            f"there are no samples to check in the order {options.order!r}",
            "leave the order out for the hardest ones",
        )
    rows = select(samples, ranked, limits, "hardest").to_check
    return rows, ("no label is doubtful: the sheet shows the hardest samples",)


def _size_of_rows(count: int) -> tuple[float, float]:
    return 7.0, 1.2 + 0.3 * count


def _size_of_sheet(samples: ScoredSamples, options: PlotOptions) -> tuple[float, float]:
    count = len(_rows_of_sheet(samples, options)[0])
    return 8.0, 1.75 * math.ceil(count / SHEET_COLUMNS)


PLOTS: Mapping[str, Plot] = {
    "histogram": Plot(_histogram, (), lambda *_: (8.0, 3.4)),
    "classes": Plot(
        _classes,
        ("n",),
        lambda samples, options: _size_of_rows(
            min(options.n or SHOWN_CLASSES, len(samples.by_class))
        ),
    ),
    "pairs": Plot(
        _pairs,
        ("n",),
        lambda samples, options: _size_of_rows(
            min(options.n or LISTED_PAIRS, len(count_confusions(samples)))
        ),
    ),
    "sheet": Plot(_sheet, ("n", "order", "images"), _size_of_sheet),
}
"""The kinds of plots by their names."""


def _require_classes(samples: ScoredSamples) -> None:
    if not samples.compares_classes:
        raise ReportError(
            "this plot compares classes, and the samples have none",
            "score again with names of classes or with clusters as classes, by ",
            Setting("classes"),
            " or ",
            Setting("clusters"),
        )


def _measure(samples: ScoredSamples) -> str:
    """What difficulty is, in words."""
    return f"{samples.measure_name} ({samples.measure}); larger is harder"


def _label_rows(axes: "Axes", texts: Sequence[str]) -> None:
    """Names the entries from the top down."""
    # A `$` in the name of a class is no formula.
    axes.set_yticks(range(len(texts)), texts, parse_math=False)
    axes.set_ylim(len(texts) - 0.4, -OVERLAP - 0.1 if axes.collections else -0.6)


def _style(axes: "Axes") -> None:
    colours = report_colours()
    axes.set_facecolor(colours["panel"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=colours["soft"], labelcolor=colours["ink"])
    for spine in axes.spines.values():
        spine.set_color(colours["faint"])


def _short(name: str) -> str:
    return shorten_value(name, LONGEST)


def _left_out(shown: int, total: int, noun: str, plural: str | None = None) -> Sequence[str]:
    if shown == total:
        return ()
    return (f"{shown} of {count_of(total, noun, plural)} are drawn; n={total} draws all",)
