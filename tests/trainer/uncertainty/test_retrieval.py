"""R-AUROC and nearest neighbours: against the published numbers and loops over samples."""

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.uncertainty import retrieval
from trainer.uncertainty.retrieval import evaluate_retrieval, nearest_neighbours


def naive_neighbours(features: Tensor) -> list[int]:
    """The other sample of highest cosine similarity, sample by sample."""
    positions = []
    for row, one in enumerate(features.double()):
        similarities = [
            -2.0 if other == row else float(one @ each / (one.norm() * each.norm()))
            for other, each in enumerate(features.double())
        ]
        positions.append(max(range(len(features)), key=similarities.__getitem__))
    return positions


def naive_r_auroc(uncertainties: Tensor, is_right: Tensor) -> float:
    """The share of pairs in the right order, where a tie counts half."""
    right, wrong = uncertainties[is_right], uncertainties[~is_right]
    below = (right[:, None] < wrong).double() + (right[:, None] == wrong).double() / 2
    return float(below.mean())


def random_samples(num_samples: int = 90) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (num_samples,), generator=generator)
    features = torch.randn(num_samples, 5, generator=generator)
    features[torch.arange(num_samples), labels] += 1.5
    uncertainties = torch.rand(num_samples, generator=generator).mul(20).round()
    return uncertainties, features, labels


def test_retrieval_gives_the_published_numbers(golden: dict[str, Tensor]) -> None:
    features, labels = golden["retrieval__features"], golden["retrieval__labels"]

    result = evaluate_retrieval(golden["retrieval__uncertainties"], features, labels)

    is_right = labels[nearest_neighbours(features)] == labels
    assert torch.equal(is_right, golden["retrieval__is_right"].bool())
    assert result.r_auroc == pytest.approx(float(golden["retrieval__r_auroc"]), rel=1e-12)
    assert result.recall_at_1 == pytest.approx(float(golden["retrieval__recall_at_1"]), rel=1e-12)
    assert result.num_samples == len(labels)


def test_ties_of_uncertainties_count_half() -> None:
    uncertainties, features, labels = random_samples()
    assert len(uncertainties.unique()) < len(uncertainties)

    result = evaluate_retrieval(uncertainties, features, labels)

    is_right = labels[torch.tensor(naive_neighbours(features))] == labels
    assert result.r_auroc == pytest.approx(naive_r_auroc(uncertainties, is_right), rel=1e-12)


@pytest.mark.parametrize("factor", [1e-8, 1000.0, -1.0])
def test_the_scale_of_the_uncertainties_does_not_matter_but_their_sign_does(factor: float) -> None:
    uncertainties, features, labels = random_samples()
    plain = evaluate_retrieval(uncertainties, features, labels).r_auroc
    assert plain is not None

    scaled = evaluate_retrieval(factor * uncertainties.double(), features, labels).r_auroc

    assert scaled == pytest.approx(plain if factor > 0 else 1 - plain, rel=1e-12)


@pytest.mark.parametrize(("query_rows", "other_rows"), [(1, 1), (7, 11), (90, 90), (1000, 13)])
def test_neighbours_do_not_depend_on_the_size_of_the_blocks(
    query_rows: int, other_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, features, _ = random_samples()
    monkeypatch.setattr(retrieval, "QUERY_ROWS", query_rows)
    monkeypatch.setattr(retrieval, "OTHER_ROWS", other_rows)

    positions = nearest_neighbours(features)

    assert positions.tolist() == naive_neighbours(features)


def test_a_sample_is_not_its_own_neighbour_where_others_are_exactly_like_it() -> None:
    _, features, _ = random_samples(20)
    twice = torch.cat([features, features])
    labels = torch.cat([torch.zeros(20), torch.ones(20)]).long()

    positions = nearest_neighbours(twice)
    result = evaluate_retrieval(torch.rand(40), twice, labels)

    assert positions.tolist() == [*range(20, 40), *range(20)]
    assert result.recall_at_1 == 0
    assert result.r_auroc is None


@pytest.mark.parametrize("other_rows", [2, 8192])
def test_the_first_of_equally_near_samples_is_the_neighbour(
    other_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "OTHER_ROWS", other_rows)
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [3.0, 0.0], [0.0, 2.0]])

    assert nearest_neighbours(features).tolist() == [2, 4, 0, 0, 1]


@pytest.mark.parametrize("factor", [1e-30, 1e-6, 1e25])
def test_the_length_of_a_feature_vector_does_not_matter(factor: float) -> None:
    _, features, _ = random_samples()
    lengths = torch.full((len(features), 1), factor)
    lengths[::2] = 1

    assert torch.equal(nearest_neighbours(lengths * features), nearest_neighbours(features))


def test_a_sample_of_zeros_has_a_neighbour_and_is_nobodys() -> None:
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.1]])

    assert nearest_neighbours(features).tolist() == [1, 2, 1]


def test_half_precision_finds_the_neighbours_of_the_same_numbers_in_single() -> None:
    _, features, _ = random_samples()
    half = features.half()

    assert torch.equal(nearest_neighbours(half), nearest_neighbours(half.float()))


@pytest.mark.parametrize("num_samples", [0, 1])
def test_too_few_samples_are_refused(num_samples: int) -> None:
    with pytest.raises(MetricError, match=f"{num_samples} samples have no nearest neighbours"):
        nearest_neighbours(torch.zeros(num_samples, 4))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_features_that_are_not_finite_are_refused(value: float) -> None:
    _, features, _ = random_samples()
    features[3, 1] = value

    with pytest.raises(MetricError, match="features of 1 of 90 samples are NaN or infinite"):
        nearest_neighbours(features)


def test_uncertainties_that_are_nan_are_refused() -> None:
    uncertainties, features, labels = random_samples()
    uncertainties[5] = torch.nan

    with pytest.raises(MetricError, match="1 of 90 scores are NaN"):
        evaluate_retrieval(uncertainties, features, labels)


def test_different_numbers_of_samples_are_refused() -> None:
    uncertainties, features, labels = random_samples()

    with pytest.raises(MetricError, match="89 uncertainties, 90 features and 90 labels"):
        evaluate_retrieval(uncertainties[1:], features, labels)
