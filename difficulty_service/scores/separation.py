"""How well features and the numbers of samples tell the classes apart, and what to do otherwise."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from difficulty_service.features.description import FeatureDescription
from difficulty_service.scores.provenance import Provenance

ENOUGH = 0.5
"""Separation below which features hardly tell the classes apart.

Of the labels that are called probably wrong, 59 to 87 % are wrong above it and 19 to 59 %
below, where a tenth of all are wrong by chance; `docs/suspicion.md` has the figures.
"""

FEW = 5
"""Samples of a class below which a wrong label among them makes the right ones look wrong.

Of labels of 200 classes that are called almost certainly wrong, 86 % are right with three images
each, 60 % with four, 33 % with five and 7 % with ten, where a twentieth of all are wrong by chance:
`benchmarks/few_samples.py --classes 200`, 2,000 images of Tiny ImageNet by `builtin-photos`.
"""

STRONGER = ("clip-vit-b16", "dinov2-vit-l14")
"""Backbones of images to try, the first one after the network of the package."""


@dataclass(frozen=True)
class Separation:
    """How well features tell the classes of labels apart.

    Attributes:
        fitting: Share of the labels that are the class that fits best, by their label margin.
        by_chance: The same if labels of these numbers were dealt at random.
        wrong: Upper estimate of the share of wrong labels, which no features would fit.
        accused_of_few: Share of the labels that are one of few of their class, where any are called
            probably wrong; else 0.
    """

    fitting: float
    by_chance: float
    wrong: float = 0.0
    accused_of_few: float = 0.0

    @classmethod
    def of(
        cls,
        num_doubtful: int,
        class_sizes: Collection[int],
        shares: tuple[float, float] | None,
        num_accused: int = 0,
    ) -> "Separation | None":
        """The separation of labels that are compared with other classes; None where none is.

        Args:
            num_doubtful: Number of those whose label margin is above 0.
            class_sizes: Number of those of each class.
            shares: Ends of the interval of the share of wrong labels, if it is known.
            num_accused: Number of those that are called probably wrong.
        """
        total = sum(class_sizes)
        if not total:
            return None
        by_chance = sum((size / total) ** 2 for size in class_sizes)
        few = sum(size for size in class_sizes if size < FEW) / total
        return cls(
            fitting=1 - num_doubtful / total,
            by_chance=by_chance,
            wrong=0.0 if shares is None else shares[1],
            accused_of_few=few if num_accused else 0.0,
        )

    @property
    def value(self) -> float:
        """0 as by chance, 1 where all labels that may be right are the class that fits best."""
        most = 1 - self.wrong - self.by_chance
        return (self.fitting - self.by_chance) / most if most > 0 else math.nan

    def caution(self, features: FeatureDescription | Provenance) -> str | None:
        """A sentence where verdicts are uncertain as a whole, with what to do."""
        sentences = []
        if self.accused_of_few > 1 / 2:
            sentences.append(
                f"{100 * self.accused_of_few:.0f} % of the {features.noun}s are in classes of "
                f"fewer than {FEW}, where one wrong label makes the others look wrong, too: of the "
                "labels that are called wrong, many are right, so look at each before you drop it"
            )
        if self.value < ENOUGH:
            sentences.append(
                f"these features hardly tell the classes apart: only {100 * self.fitting:.0f} % of "
                f"the {features.noun}s look most like their own class, and "
                f"{100 * self.by_chance:.0f} % would by chance, so that all scores are uncertain; "
                f"{_remedy(features)}"
            )
        return "; ".join(sentences) or None


def _remedy(features: FeatureDescription | Provenance) -> str:
    if features.noun == "text":
        return "an encoder that knows the language may do better: the backbone transformers:NAME"
    tried = (features.backbone or "").split(":")[0]
    stronger = STRONGER[0] if tried.startswith("builtin") else STRONGER[1]
    if tried in {"", STRONGER[1]}:
        return "features of a network that was trained on similar images may do better"
    return f"a stronger backbone may do better: {stronger}"
