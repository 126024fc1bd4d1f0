"""The section of the page about training: does it help, and when?"""

from collections.abc import Sequence

from benchmarks.evidence.label_sets import OFFICIAL
from benchmarks.evidence.results import Results
from benchmarks.evidence.tables import NONE, NOT_RUN, Number, Shown, best_in_columns, markdown
from benchmarks.evidence.training.answers import LABELS, NETWORKS, answers
from benchmarks.evidence.training.cells import chosen_alpha
from benchmarks.evidence.training.comparison import (
    MEASURES,
    Difference,
    Measure,
    difference,
    mean_and_deviation,
    mean_temperature,
    runs_of,
)
from benchmarks.evidence.training.data import HELD_OUT_EVERY, KINDS, MOST_IMAGES
from benchmarks.evidence.training.methods import (
    PLAIN,
    PROBE,
    SCRATCH,
    Method,
    Network,
    methods_for,
)


def training(results: Results) -> str:
    """What every way to train gains over cross-entropy."""
    parts = [_introduction(results)]
    for network, name in NETWORKS.items():
        for kind in KINDS:
            parts.append(f"### Training: {name}, {LABELS[kind]}\n")
            parts += _tables(results, network, kind)
    return "\n".join(parts)


def _tables(results: Results, network: Network, kind: str) -> list[str]:
    """The tables of a network and a set of labels, of the methods that have run."""
    runs = {each: len(runs_of(results, network, kind, each)) for each in methods_for(kind)}
    missing = [each.name for each, seeds in runs.items() if seeds < network.seeds]
    tables = []
    if len(missing) < len(runs):
        tables += [_table(results, network, kind), _ends(results, network, kind)]
    if max(runs.values()) > 1:
        tables.append(_differences(results, network, kind))
    if missing:
        tables.append(f"Not run with all seeds: {', '.join(missing)}.\n")
    return tables


def _introduction(results: Results) -> str:
    train = MOST_IMAGES - MOST_IMAGES // HELD_OUT_EVERY
    run = next(iter(runs_of(results, SCRATCH, OFFICIAL, PLAIN).values()), None)
    size = "" if run is None else f" of {run['parameters']:,} parameters"
    return f"""## Training: does it help, and when?

{train:,} training images of CIFAR-10, evenly spaced among the 50,000, under the official labels and
two sets of CIFAR-10N; everything is tested on the 10,000 test images with their official labels.

- **From scratch**: a residual network{size}, {SCRATCH.epochs} epochs with flips,
  {SCRATCH.seeds} seeds. So brief a training fits the few hours of this page and reaches little
  of what CIFAR-10 allows;
  [findings](findings.md#networks-trained-from-scratch-with-the-scores) has a larger network.
- **Probe**: one hidden layer on the features of the built-in encoder, {PROBE.epochs} epochs,
  {PROBE.seeds} seeds.
- **Weights and suspicion** come from the built-in encoder's features of the training images with
  the labels that are trained on. The encoder has seen the images of CIFAR-100, which the network
  from scratch has not.
- **Constants**: the strength of the entropy term (alpha) is the one of {_listed(SCRATCH.alphas)}
  from scratch, of {_listed(PROBE.alphas)} for the probe, with the least NLL on
  {MOST_IMAGES // HELD_OUT_EVERY:,} other training images with the first seed. Their labels are
  as wrong as those that are trained on. No other constant is searched.
- **Scaled** measures are those after temperature scaling on the same images. Where their labels
  are wrong, so is the temperature, and the network is then too unsure: these measures count only
  under the official labels.
- **Suspects** have `suspicion` above 0; the weighted loss and the soft targets take the
  probability that the label is right from the same score.
{_temperatures(results)}
A method helps if a measure is better than that of cross-entropy by more than the 95 % interval of
the differences over the seeds (Student, paired by the seed; not corrected for several measures, of
which one in twenty differs by chance). Only seeds differ between runs, not the images.

{answers(results)}"""


def _temperatures(results: Results) -> str:
    """How overconfident networks are without any help, under the official labels."""
    found = {
        name: mean
        for network, name in NETWORKS.items()
        if (mean := mean_temperature(runs_of(results, network, OFFICIAL, PLAIN))) is not None
    }
    if not found:
        return ""
    listed = ", ".join(f"{mean:.2f} ({name})" for name, mean in found.items())
    return f"""- **Overconfidence**: with cross-entropy and the official labels, the temperature is
  {listed}. Near 1 there is no overconfidence to cure.
"""


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _table(results: Results, network: Network, kind: str) -> str:
    """Means and standard deviations, the best of each column bold."""
    methods = methods_for(kind)
    columns = [[_cell(results, network, kind, each, m) for each in methods] for m in MEASURES]
    header = ("mean ± standard deviation", *(measure.name for measure in MEASURES))
    return best_in_columns(header, [_name(results, network, kind, m) for m in methods], columns)


def _name(results: Results, network: Network, kind: str, method: Method) -> str:
    alpha = chosen_alpha(results.folder, network, kind, method)
    return method.name if alpha is None else f"{method.name}, alpha {alpha:g}"


def _cell(results: Results, network: Network, kind: str, method: Method, measure: Measure) -> Shown:
    runs = runs_of(results, network, kind, method)
    if len(runs) < network.seeds:
        return NOT_RUN
    mean, deviation = mean_and_deviation(runs, measure)
    texts = [f"{measure.scale * each:.{measure.digits}f}" for each in (mean, deviation)]
    return Number(mean if measure.larger_is_better else -mean, " ± ".join(texts))


def _differences(results: Results, network: Network, kind: str) -> str:
    """Differences from cross-entropy, bold where a method is better by more than the interval."""
    plain = runs_of(results, network, kind, PLAIN)
    rows = []
    for method in methods_for(kind)[1:]:
        runs = runs_of(results, network, kind, method)
        cells = [_difference(difference(runs, plain, measure)) for measure in MEASURES]
        if any(cell != NONE for cell in cells):
            rows.append([method.name, *cells])
    return markdown(("minus cross-entropy", *(each.name for each in MEASURES)), rows)


def _difference(found: Difference | None) -> str:
    if found is None:
        return NONE
    measure = found.measure
    # Adding zero turns -0.0 into 0.0.
    mean = round(measure.scale * found.mean, measure.digits) + 0.0
    error = measure.scale * found.error
    text = f"{mean:+.{measure.digits}f} ± {error:.{measure.digits}f}"
    return f"**{text}**" if found.verdict > 0 else text


def _ends(results: Results, network: Network, kind: str) -> str:
    """Which strengths are the least or the largest that were tried; empty where none is."""
    names = []
    for method in methods_for(kind):
        alpha = chosen_alpha(results.folder, network, kind, method)
        if alpha in {network.alphas[0], network.alphas[-1]}:
            which = "least" if alpha == network.alphas[0] else "largest"
            names.append(f"{method.name} ({which})")
    if not names:
        return ""
    return f"The strength chosen is at an end of those tried for: {', '.join(names)}.\n"
