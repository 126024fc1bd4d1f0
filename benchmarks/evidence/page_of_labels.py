"""Sections of the page about labels: wrong ones, and what people disagree on."""

from benchmarks.evidence.names import OURS, PEERS, PHOTO_ENCODER, WITH_SUSPICION, label
from benchmarks.evidence.page_text import (
    FORMER,
    NOT_RUN,
    Column,
    Tables,
    count,
    grouped,
    of_scores,
    total,
)
from benchmarks.evidence.tables import Row, bold, markdown

RANKS, DENSITIES = "both by mean of ranks", "both by mean of log-densities"
FEATURES = ("builtin", "MobileNetV2", RANKS)
VERIFIED = "verified errors"
HEAD = "uncertainty"
SOFT, WEIGHTED = "soft targets", "difficulty-weighted entropy"
SCORES = ("rmd", "label_margin", "suspicion", "cleanlab self_confidence", "AUM", "scikit-learn LDA")
SHOWN_SETS = (("builtin", "worst"), ("MobileNetV2", "worst"), (RANKS, VERIFIED))
CUTS = {
    "label_margin": "rmd",
    "suspicion": "suspicion",
    "cleanlab self_confidence": "cleanlab",
    "AUM": "training",
}
"""Scores with a cut of their own, and the method whose cost is theirs."""

PLANTED_SCORES = ("rmd", "suspicion", "agree", "AUM")
PLANTED_PERCENT = "10"
CHANCE = 0.45
"""AUROC below which a score ranks hard samples as easy, and not by chance."""

KIND_SCORES = ("rmd", "suspicion", "agree", "knn", "AUM", "EL2N")
PLANTED = (
    ("CIFAR-100", "symmetric"),
    ("CIFAR-100", "class-dependent"),
    ("Tiny ImageNet", "symmetric"),
    ("Tiny ImageNet", "class-dependent"),
)
VOTES = ("rmd", "md", "agree", "ambiguity", "uncertainty", "EL2N")
VIEWS = (
    "MobileNetV2",
    "builtin, MobileNetV2",
    "builtin + flip, MobileNetV2 + flip, MobileNetV2-224",
)


def in_short(tables: Tables) -> str:
    """Who is ahead, and which numbers are of a former statistic."""
    people, planted = (
        ", ".join(
            f"{total(tables.rows('best', labels=labels, features=each, whose='ours'))} of "
            f"{total(found)} ({_short(each)})"
            for each in FEATURES
            if (found := tables.rows("best", labels=labels, features=each))
        )
        for labels in ("people", "planted")
    )
    former = ""
    if any(row["suspicion_statistic"] == FORMER for row in tables.rows("best")):
        former = """
**Former statistic**: numbers of `suspicion`, and of training that drops, relabels, weighs or
softens labels by it, were measured before it knew the number of wrong labels
(`suspicion_statistic` in the tables). Its cut at 0 selects far fewer labels now. Only
[the counts](#how-many-labels-are-wrong) are of the present one.
"""
    return f"""# Evidence

<!-- Written by `python -m benchmarks.evidence.page`. -->

Scores of this project beside other packages and published methods, on the same features and labels.
This page has the rows that decide each question; [the tables](#the-tables) have all. Bold is the
best of all scores. `make evidence` [repeats it](#how-to-repeat-it).
{former}
- **Wrong labels that people gave**: the highest AUROC is ours in {people or NOT_RUN} sets.
- **Planted wrong labels**: in {planted or NOT_RUN} sets.
{_behind(tables)}- **Training** with soft targets for wrong labels helps, if only in part, in
  {_helps(tables, SOFT)} cases; with entropy weighted by difficulty in {_helps(tables, WEIGHTED)}.
"""


def _helps(tables: Tables, method: str) -> str:
    rows = tables.rows("verdicts", method=method, beside="cross-entropy")
    return count(rows, lambda row: row["answer"].startswith("helps"))


def _behind(tables: Tables) -> str:
    """Where a peer is ahead."""
    places = [
        f"{labels} ({_short(features)})"
        for features in FEATURES
        for labels in dict.fromkeys(row["labels"] for row in tables.rows("wrong_labels"))
        if _ahead(tables.rows("wrong_labels", features=features, labels=labels), "auroc")
    ]
    lost = [
        features
        for features in FEATURES
        # The head of `uncertainty` learned from other images, which no peer has seen.
        if _ahead([row for row in tables.rows("people", features=features) if row["score"] != HEAD])
    ]
    places += [f"the votes of people ({', '.join(map(_short, lost))})"] if lost else []
    peers = tables.rows("best", labels="planted", whose="a peer's")
    if peers:
        places.append(f"{total(peers)} of the planted sets")
    return f"- **A peer is ahead** on {', '.join(places)}.\n" if places else ""


def _short(features: str) -> str:
    return "both" if features == RANKS else features


def _ahead(rows: list[dict[str, str]], key: str = "spearman") -> bool:
    """Whether the best of peers is above the best of ours."""
    ours, theirs = (
        [float(row[key]) for row in rows if row["score"] in side] for side in (OURS, PEERS)
    )
    return bool(ours and theirs) and max(theirs) > max(ours)


def wrong_labels(tables: Tables) -> str:
    """Ranking, cuts and cost."""
    columns = [
        Column(
            f"{_short(features)}, {labels}",
            tables.rows("wrong_labels", features=features, labels=labels),
            "auroc",
        )
        for features, labels in SHOWN_SETS
    ]
    paired = tables.rows("paired")
    sure, unsure = (
        count([row for row in paired if (row["labels"] == VERIFIED) == verified], _is_sure)
        for verified in (False, True)
    )
    return f"""## Wrong labels that people gave

AUROC for 50,000 training images of CIFAR-10 under labels of CIFAR-10N (`worst`: 40 % wrong,
`aggre`: 9 %), and for 54 verified errors of 10,000 official test labels, which cleanlab proposed.
"Both" is the mean of ranks.

{of_scores(SCORES, columns, "auroc_95")}
`suspicion` is above a peer by more than the paired 95 % interval in {sure} pairs on CIFAR-10N,
{unsure} on verified errors. Precision / recall of own cuts, and processor seconds (builtin):

{_cuts(tables)}"""


def _is_sure(row: Row) -> bool:
    return float(row["auroc_difference"]) > float(row["auroc_difference_95"])


def _cuts(tables: Tables) -> str:
    rows = []
    for score, method in CUTS.items():
        cells = [
            f"{found[0]['precision']} / {found[0]['recall']}" if found else NOT_RUN
            for labels in ("aggre", "worst")
            for found in [
                tables.rows("wrong_labels", features="builtin", labels=labels, score=score)
            ]
        ]
        seconds = tables.text("costs", "seconds", features="builtin", method=method)
        rows.append([label(score), *cells, seconds])
    return markdown(("score", "aggre", "worst", "seconds"), rows)


def planted(tables: Tables) -> str:
    """Labels that are wrong on purpose."""
    chosen = tables.rows("planted", features="builtin", wrong_percent=PLANTED_PERCENT)
    rows = []
    for dataset, noise in PLANTED:
        found = {
            row["score"]: row["auroc"]
            for row in chosen
            if (row["dataset"], row["noise"]) == (dataset, noise)
        }
        texts = [found.get(score, NOT_RUN) for score in PLANTED_SCORES]
        rows.append(
            [f"{dataset}, {noise}", *bold(texts, max(found.values(), key=float, default=None))]
        )
    return f"""## Planted wrong labels

AUROC at {PLANTED_PERCENT} % wrong labels, built-in features.

{markdown(("labels", *map(label, PLANTED_SCORES)), rows)}
![AUROC over the rate of wrong labels, by dataset and kind of noise](images/evidence-planted.svg)
"""


def kinds(tables: Tables) -> str:
    """Which score finds which kind of hard sample."""
    found: dict[str, dict[str, str]] = {}
    for row in tables.rows("kinds"):
        found.setdefault(row["kind"], {})[row["score"]] = row["auroc"]
    rows = []
    for kind, by_score in found.items():
        texts = [by_score.get(score, NOT_RUN) for score in KIND_SCORES]
        best = max(by_score, key=lambda score: float(by_score[score]))
        rows.append([kind, *bold(texts, by_score[best]), f"{label(best)} {by_score[best]}"])
    below = [kind for kind, by_score in found.items() if float(by_score.get("knn", 1)) < CHANCE]
    clustered = (
        f"`knn` is below chance for {', '.join(below)}: many hard images that are alike are a\n"
        "cluster of their own.\n"
        if below
        else ""
    )
    asked = tables.rows("kinds")[:1]
    how = (
        f"{int(asked[0]['samples']):,} test images of CIFAR-10, mean of {asked[0]['draws']} draws, "
        f"built-in features ({asked[0]['machine']})."
        if asked
        else f"{NOT_RUN}."
    )
    return f"""## Kinds of hardness

AUROC for a tenth of the samples made hard in one way, after [H-CAT](https://arxiv.org/abs/2403.04551):
{how}
Near images are of CIFAR-100, far ones of MNIST; domain is Gaussian noise, zoom the middle enlarged
twice, shift a move by twelve pixels. Foreign and changed images keep their labels.

{markdown(("kind", *map(label, KIND_SCORES), "best of all"), rows)}
{clustered}"""


def people(tables: Tables) -> str:
    """Rank correlations with the entropy of people's votes."""
    columns = [
        Column(
            _short(features),
            tables.rows("people", features=features),
            "spearman",
        )
        for features in (*FEATURES, PHOTO_ENCODER)
        if features != PHOTO_ENCODER or tables.rows("people", features=PHOTO_ENCODER)
    ]
    return f"""## Images that people disagree on

Spearman's correlation with the entropy of about fifty votes on each of 10,000 test images
(CIFAR-10H), ± 0.02. `uncertainty` learned from 50,000 other images.

{of_scores(VOTES, columns)}
{_ambiguity(tables)}"""


def _ambiguity(tables: Tables) -> str:
    """What `ambiguity` has more than the best peer, and whether it helps to find wrong labels."""
    leads = []
    for features in dict.fromkeys(row["features"] for row in tables.rows("ambiguity")):
        rows = tables.rows("ambiguity", features=features, labels="votes")
        peers = [row for row in rows if row["than"] in PEERS]
        if peers:
            least = min(peers, key=lambda row: float(row["difference"]))
            leads.append(f"{_signed(least)} ({features}, {label(least['than'])})")
    wrong = tables.rows("ambiguity", measure="auroc", score=WITH_SUSPICION)
    better = count(wrong, lambda row: float(row["difference"]) > float(row["difference_95"]))
    worse = count(wrong, lambda row: -float(row["difference"]) > float(row["difference_95"]))
    return f"""`ambiguity` minus the best peer, paired: {", ".join(leads) or NOT_RUN}.
Beside `suspicion` (mean of ranks) it ranks wrong labels of people better in {better} sets and worse
in {worse}, each beyond the paired interval.
"""


def _signed(row: Row) -> str:
    return f"{float(row['difference']):+.3f} ± {float(row['difference_95']):.3f}"


def views(tables: Tables) -> str:
    """Several views of the same images."""
    agreement = "; ".join(
        f"{label(score)} {', '.join(found)}"
        for score in ("agree", "EL2N")
        for found in [[tables.text("views", "spearman", views=each, score=score) for each in VIEWS]]
    )
    ranks, densities = (
        tables.text("wrong_labels", "auroc", features=features, labels="worst", score="suspicion")
        for features in (RANKS, DENSITIES)
    )
    return f"""## Several views of the same images

Agreement with people by MobileNetV2 alone, with the built-in encoder, then with mirror and larger
images: {agreement}. [Averaging log-densities](comparing.md#several-backbones-as-one) gives
`suspicion` {densities} under `worst`, averaging ranks {ranks}.
"""


def counts(tables: Tables) -> str:
    """How many labels `p_wrong` says are wrong."""
    tiers = ("above_half", "above_half_wrong_share", "above_95", "above_95_wrong_share")
    keys = ("wrong", "expected", "fit_low", *tiers)
    found = tables.rows("counts")
    rows = [
        [
            f"{row['dataset']}, {row['labels']}, {grouped(row['samples'])}",
            row["features"],
            *(grouped(row[key]) or "-" for key in keys),
        ]
        for row in found
    ]
    shares = ("above ½", "share wrong", "above .95", "share wrong")
    header = ("labels", "features", "wrong", "expected", "fit, from", *shares)
    took = f" ({found[0]['draws']} draws, {found[0]['machine']})" if found else ""
    return f"""## How many labels are wrong

Expected is the sum of `p_wrong`{took}. Above ½ labels are called probably wrong, above .95 almost
certainly wrong. Errors of people are undercounted; with ten images per class, many right labels are
accused.

{markdown(header, rows)}"""
