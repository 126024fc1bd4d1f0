"""The rows of docs/papers/results.csv, each with commands that do the same with few samples."""

from dataclasses import dataclass

BRIEF = "--set training.epochs=1 --set training.seeds=[0] --set data.validation=0.2"
CIFAR10 = f"--set data.train={{cifar10}} --set data.test={{cifar10_test}} {BRIEF}"
CIFAR100 = f"--set data.train={{cifar100}} --set data.test={{cifar100_test}} {BRIEF}"
TINY = f"--set data.train={{tiny}} --set data.test={{tiny}} --set data.image_size=32 {BRIEF}"
NEWS = (
    "--set data.train={news} --set data.split=train --set data.test={news} "
    f"--set data.test_split=test {BRIEF}"
)
SST = (
    "--set data.train={sst} --set data.test={sst} --set data.validation={sst} "
    "--set training.epochs=1 --set training.seeds=[0]"
)
STEPS = "--set schedule.milestones=[0.5]"
"""Of recipes whose learning rate falls after so many epochs."""

SMALL = (
    f"cifar10_small_resnet {CIFAR10} --set model.widths=[16,32,96] --set model.blocks=[1,1,1] "
    "--set training.precision=fp32"
)
ALONE = "--set model.embeddings= --set model.freeze_embeddings=false"
"""Word vectors that are learned, because no file of GloVe is at hand."""
EPOCHS = SMALL.replace("training.epochs=1", "training.epochs=3")

SCORE = "score {cifar10} --backbone builtin --out {out}/train.parquet"
SCORE_TEST = "score {cifar10_test} --backbone builtin --out {out}/test.parquet"
BY_SCORES = (
    "--scores {out}/train.parquet --set regulariser.weights=scores --set regulariser.alpha=0.3"
)
PLAIN = f"train {SMALL} --out {{out}}/plain"
WEIGHTED = f"train {SMALL} {BY_SCORES} --out {{out}}/weighted"
RANKING = f"train {SMALL} --set loss.name=correctness_ranking --out {{out}}/ranking"
IMAGENET = f"sample_difficulty_imagenet {TINY} {STEPS} --set training.batch_size=32"
SCORE_TINY = "score {tiny} --backbone builtin --out {out}/train.parquet"
HEAD = (
    "extract {cifar100} --backbone builtin --augment-runs 2 --out {out}/train",
    "train uncertainty --set data.train={out}/train --set data.test= "
    "--set training.epochs=1 --set uncertainty.epochs=1 --out {out}/head",
)


@dataclass(frozen=True)
class Row:
    """A table or figure of a paper.

    Attributes:
        name: Name on the page.
        commands: What follows `difficulty`, or `python -m` where it begins with `benchmarks.`, one
            command after another; `{out}` is the folder of the row, and other names in braces are
            data.
    """

    name: str
    commands: tuple[str, ...]


def _train(name: str, recipe: str, data: str) -> Row:
    return Row(name, (f"train {recipe} {data} --out {{out}}/run", "evaluate {out}/run"))


SAMPLE_DIFFICULTY = (
    Row(
        "difficulty-sheets",
        (
            SCORE,
            "figures {out}/train.parquet --out {out}/figures",
            "figures {out}/train.parquet --score-column md --out {out}/figures-md",
            "report {out}/train.parquet --out {out}/report.html",
        ),
    ),
    Row(
        "difficulty-severity",
        (
            "extract {cifar10} --backbone builtin --out {out}/clean",
            "fit {out}/clean --out {out}/clean.safetensors",
            *(
                f"score {{cifar10_test}} --backbone builtin --corrupt fog:{severity} "
                f"--gaussians {{out}}/clean.safetensors --out {{out}}/fog-{severity}.parquet"
                for severity in (1, 5)
            ),
            "figures {out}/fog-1.parquet {out}/fog-5.parquet --out {out}/figures",
            "score {cifar10} --backbone builtin --id-column index --label-column noisy_worst "
            "--out {out}/wrong.parquet",
            "audit {out}/wrong.parquet --against {cifar10} --join index --column label",
        ),
    ),
    Row(
        "difficulty-calibration",
        (
            SCORE,
            *(
                f"train {SMALL} {settings} --out {{out}}/{name}"
                for name, settings in (
                    ("plain", ""),
                    ("smoothing", "--set loss.name=label_smoothing --set loss.smoothing=0.05"),
                    ("focal", "--set loss.name=focal --set loss.gamma=3"),
                    ("poly", "--set loss.name=poly_loss"),
                    ("l1", "--set loss.name=logit_l1"),
                    ("crl", "--set loss.name=correctness_ranking"),
                    ("entropy", "--set regulariser.alpha=0.1"),
                    ("weighted", BY_SCORES),
                )
            ),
            "compare {out}/plain {out}/smoothing {out}/focal {out}/poly {out}/l1 {out}/crl "
            "{out}/entropy {out}/weighted --resamples 50 --out {out}/comparison.md",
        ),
    ),
    Row(
        "difficulty-imagenet",
        (SCORE_TINY, f"train {IMAGENET} --scores {{out}}/train.parquet --out {{out}}/run"),
    ),
    Row(
        "difficulty-errors",
        (
            SCORE_TEST,
            PLAIN,
            "figures {out}/plain {out}/test.parquet --out {out}/figures",
            "figures {out}/plain {out}/test.parquet --score-column md --out {out}/figures-md",
        ),
    ),
    Row(
        "difficulty-shift",
        (
            PLAIN,
            "evaluate {out}/plain --corruptions --resamples 20",
            "figures {out}/plain --out {out}/figures",
        ),
    ),
    Row("difficulty-rejection", (PLAIN, "figures {out}/plain --out {out}/figures")),
    Row(
        "difficulty-misclassified",
        (
            PLAIN,
            "evaluate {out}/plain --resamples 50",
            "figures {out}/plain --out {out}/figures",
        ),
    ),
    Row("difficulty-ood", (PLAIN, "evaluate {out}/plain --ood {mnist} --resamples 50")),
    Row(
        "difficulty-alpha",
        (
            SCORE,
            f"sweep {SMALL} --scores {{out}}/train.parquet --set regulariser.weights=scores "
            "--over regulariser.alpha=0,0.1,0.3 --resamples 50 --out {out}/proposed",
            f"sweep {SMALL} --over regulariser.alpha=0,0.1,0.3 --resamples 50 "
            "--out {out}/entropy",
        ),
    ),
    Row(
        "difficulty-weights",
        (
            SCORE,
            f"sweep {SMALL} {BY_SCORES} --over regulariser.score_temperature=0.2,0.7,2 "
            "--resamples 50 --out {out}/temperatures",
        ),
    ),
    Row(
        "difficulty-backbones",
        (
            "backbones",
            SCORE,
            "score {cifar10} --backbone timm:mobilenetv2_100 --weights {mobilenet} "
            "--out {out}/mobilenet.parquet",
            f"train {SMALL} {BY_SCORES} --set name=builtin --out {{out}}/builtin",
            f"train {SMALL} {BY_SCORES.replace('train.parquet', 'mobilenet.parquet')} "
            "--set name=mobilenet --out {out}/mobilenet",
            "compare {out}/builtin {out}/mobilenet --resamples 50 --out {out}/comparison.md",
        ),
    ),
    Row(
        "difficulty-ranking",
        (
            SCORE,
            RANKING,
            WEIGHTED,
            "compare {out}/ranking {out}/weighted --resamples 50 --out {out}/comparison.md",
        ),
    ),
    Row(
        "difficulty-measures",
        (
            "score {tiny} --backbone builtin --scorers rmd,kmeans --out {out}/train.parquet",
            *(
                f"train {IMAGENET} --scores {{out}}/train.parquet "
                f"--set regulariser.column={column} --out {{out}}/{column}"
                for column in ("kmeans", "md", "rmd")
            ),
        ),
    ),
    Row(
        "difficulty-networks",
        (
            SCORE_TINY,
            *(
                f"train {IMAGENET} --scores {{out}}/train.parquet --set model.name=timm:{model} "
                f"--out {{out}}/{model}"
                for model in ("resnet18", "densenet121")
            ),
            f"train {IMAGENET} --set regulariser.weights=constant --set regulariser.alpha=0.1 "
            "--set model.name=timm:resnet18 --out {out}/entropy",
        ),
    ),
    Row(
        "difficulty-of-a-run",
        (
            PLAIN,
            "evaluate {out}/plain --data {cifar10} --write-scores {out}/loss.parquet",
            "score {cifar10} --backbone run:{out}/plain --out {out}/train.parquet",
            f"train {SMALL} {BY_SCORES.replace('train.parquet', 'loss.parquet')} "
            "--set regulariser.column=loss --out {out}/by-loss",
            f"train {SMALL} {BY_SCORES} --out {{out}}/by-rmd",
        ),
    ),
)

FOCAL = (
    _train("focal-cifar10", "focal_cifar10", f"{CIFAR10} {STEPS}"),
    _train("focal-cifar100", "focal_cifar100", f"{CIFAR100} {STEPS}"),
    _train("focal-tiny", "focal_tiny_imagenet", f"{TINY} {STEPS}"),
    _train("focal-newsgroups", f"focal_newsgroups {ALONE}", NEWS),
    _train("focal-sst", "tree_lstm_sst --set loss.name=flsd_53", f"{SST} {ALONE}"),
    _train("focal-mmce", "mmce_cifar10", f"{CIFAR10} {STEPS}"),
    _train("focal-brier", "brier_cifar10", f"{CIFAR10} {STEPS}"),
    Row(
        "focal-variants",
        (
            f"sweep {SMALL} --resamples 50 "
            "--over loss.name=focal,flsd_532,flsd_53 --out {out}/losses",
            f"sweep {SMALL} --set loss.name=focal --resamples 50 "
            "--over loss.gamma=1,2 --out {out}/gammas",
            f"train {SMALL} --set loss.name=scheduled_focal "
            "--set loss.gammas=[5,3,2] --set loss.boundaries=[0.3,0.7] "
            "--set loss.fractional=true --out {out}/scheduled",
        ),
    ),
    Row(
        "focal-stopping",
        (
            f"sweep {EPOCHS} --set training.final=best --resamples 50 "
            "--over training.best_by=ece,nll,accuracy --out {out}/criteria",
        ),
    ),
    Row(
        "focal-training-set",
        (
            "train cross_entropy_cifar10 --set data.train={cifar10} --set data.test={cifar10} "
            f"{BRIEF} --set schedule.name=constant --out {{out}}/run",
            "figures {out}/run --out {out}/figures",
        ),
    ),
    Row(
        "focal-intervals",
        (
            PLAIN,
            "evaluate {out}/plain --intervals 0.9 --resamples 50",
            "figures {out}/plain --out {out}/figures",
        ),
    ),
    Row(
        "focal-sure-samples",
        (
            PLAIN,
            "evaluate {out}/plain --resamples 50 --write-scores {out}/own.parquet",
            "figures {out}/plain {out}/own.parquet --score-column doubt --out {out}/figures",
        ),
    ),
    Row("focal-linear", ("benchmarks.studies.toys --seeds 2 --only linear",)),
    Row(
        "focal-formulas",
        ("benchmarks.studies.toys --seeds 1 --only gradients --only minimisers",),
    ),
    Row(
        "focal-epochs",
        (
            f"train {EPOCHS} --set loss.name=focal --set loss.gamma=3 --out {{out}}/focal",
            "figures {out}/focal --out {out}/figures",
        ),
    ),
    Row(
        "focal-ood",
        (
            PLAIN,
            "evaluate {out}/plain --ood {mnist} --resamples 50",
            "figures {out}/plain --out {out}/figures",
        ),
    ),
)

ADAFOCAL = (
    _train("adafocal-cifar10", "adafocal_cifar10", f"{CIFAR10} {STEPS}"),
    _train("adafocal-cifar100", "adafocal_cifar100", f"{CIFAR100} {STEPS}"),
    _train(
        "adafocal-imagenet",
        "adafocal_imagenet --set training.batch_size=32",
        f"{TINY} {STEPS}",
    ),
    _train("adafocal-tiny", "focal_tiny_imagenet --set loss.name=adafocal", f"{TINY} {STEPS}"),
    _train("adafocal-newsgroups", f"focal_newsgroups {ALONE} --set loss.name=adafocal", NEWS),
    _train(
        "adafocal-bert",
        "adafocal_newsgroups_bert --set model.name=transformers:{bert}",
        NEWS,
    ),
    Row(
        "adafocal-fixed",
        (
            f"sweep {EPOCHS} --set loss.name=adafocal --set loss.rate=0 --set loss.switch=0 "
            "--over loss.first_gamma=0,4 --resamples 50 --out {out}/gammas",
            "figures {out}/gammas/loss.first_gamma=0 {out}/gammas/loss.first_gamma=4 "
            "--out {out}/figures",
        ),
    ),
    Row("adafocal-bins", ("benchmarks.studies.toys --seeds 2 --only bins",)),
    Row(
        "adafocal-gammas",
        (
            f"train {EPOCHS} --set loss.name=adafocal --out {{out}}/run",
            "figures {out}/run --out {out}/figures",
        ),
    ),
    Row(
        "adafocal-ood",
        (
            f"train {SMALL} --set loss.name=adafocal --out {{out}}/run",
            "evaluate {out}/run --ood {mnist} --resamples 50",
            "figures {out}/run --out {out}/figures",
        ),
    ),
)

GRADIENTS = (
    _train("bsce-cifar10", "bsce_gra_cifar10", f"{CIFAR10} {STEPS}"),
    _train("bsce-cifar100", "bsce_gra_cifar100", f"{CIFAR100} {STEPS}"),
    _train("bsce-tiny", "focal_tiny_imagenet --set loss.name=bsce_gra", f"{TINY} {STEPS}"),
    Row(
        "bsce-ablation",
        (
            f"sweep {SMALL} --resamples 50 "
            "--over loss.name=focal,focal_gra,dual_focal,dual_focal_gra,bsce,bsce_gra "
            "--out {out}/losses",
        ),
    ),
    Row("bsce-changes", ("benchmarks.studies.toys --seeds 2 --only changes",)),
    Row("bsce-weights", ("benchmarks.studies.toys --seeds 2 --only weights",)),
    _train("bsce-dual-focal", "dual_focal_cifar10", f"{CIFAR10} {STEPS}"),
    _train("bsce-dual-focal-cifar100", "dual_focal_cifar100", f"{CIFAR100} {STEPS}"),
)

UNCERTAINTY = (
    Row(
        "uncertainty-stop-gradient",
        (
            "benchmarks.studies.stop_gradient --images {cifar100} --seeds 2 --epochs 1 "
            "--folder {out} --table {out}/table.csv",
        ),
    ),
    Row(
        "uncertainty-zero-shot",
        (*HEAD, "uncertainty {out}/head {cifar10_test} --out {out}/uncertainty.parquet"),
    ),
    Row(
        "uncertainty-interventions",
        (
            *HEAD,
            "extract {cifar10_test} --backbone builtin --corrupt gaussian_noise:5 "
            "--out {out}/noise",
            "uncertainty {out}/head {out}/noise --out {out}/uncertainty.parquet",
        ),
    ),
)

ROWS = (*SAMPLE_DIFFICULTY, *FOCAL, *ADAFOCAL, *GRADIENTS, *UNCERTAINTY)
