"""Each corruption does what its definition says: movement, lenses and weather."""

import numpy as np
import pytest
import torch

from difficulty_service.images.corruptions import corrupt
from difficulty_service.images.corruptions.pixels import move_blur, move_corners, zoom_in
from difficulty_service.images.corruptions.weather import cloud


def test_speckle_noise_is_in_proportion_to_the_value() -> None:
    images = torch.full((8, 3, 32, 32), 100, dtype=torch.uint8)

    noise = corrupt(images, "speckle_noise", 5, seed=0).double() - 100
    black = corrupt(torch.zeros_like(images), "speckle_noise", 5, seed=0)

    assert float(noise.std()) == pytest.approx(0.2 * 100, rel=0.03)
    assert not black.any()


def test_glass_moves_pixels_no_farther_than_its_reach() -> None:
    rows = torch.arange(32).repeat(32, 1).T * 8
    image = torch.stack([rows, rows.T, torch.zeros_like(rows)]).to(torch.uint8)

    (moved,) = corrupt(image[None], "glass_blur", 1, seed=0)

    distances = (moved.int() - image.int()).abs().amax(dim=(1, 2)) // 8
    assert distances.tolist() == [1, 1, 0]
    assert 0.3 < float((moved != image)[:2].any(dim=0).double().mean()) < 0.9


def test_a_moving_point_is_a_line_with_half_of_a_normal_distribution() -> None:
    layers = np.zeros((1, 9, 30))
    layers[0, 4, 20] = 1

    (blurred,) = move_blur(layers, radius=3, sigma=2.0, degrees=0)

    weights = np.exp(-(np.arange(7) ** 2) / 8)
    np.testing.assert_allclose(blurred[4, 20:13:-1], weights / weights.sum())
    assert blurred.sum() == pytest.approx(1)


def test_a_moving_point_follows_its_direction() -> None:
    layers = np.zeros((1, 41, 41))
    layers[0, 20, 20] = 1

    (blurred,) = move_blur(layers, radius=6, sigma=9.0, degrees=-45)

    rows, columns = np.nonzero(blurred)
    assert (rows - 20 == 20 - columns).all(), "up to the right, seen from where light came"
    assert len(rows) >= 9


def test_zooming_enlarges_the_middle() -> None:
    ramp = np.tile(np.linspace(0, 1, 40), (1, 30, 1))

    zoomed = zoom_in(ramp, 2)

    assert zoomed.shape == ramp.shape
    np.testing.assert_array_equal(zoom_in(ramp, 1), ramp)
    assert np.ptp(zoomed) == pytest.approx(np.ptp(ramp[:, :, 10:30]), rel=0.03)
    assert zoomed.mean() == pytest.approx(0.5, abs=0.02)


def test_fog_hides_contrast_and_keeps_within_the_brightest_value() -> None:
    images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)

    foggy = corrupt(images, "fog", 5, seed=0)

    assert (foggy.amax(dim=(1, 2, 3)) <= images.amax(dim=(1, 2, 3))).all()
    assert foggy.double().std() < images.double().std()


def test_fog_with_a_slower_decay_has_finer_detail() -> None:
    def roughness(decay: float) -> float:
        clouds = [cloud((64, 64), decay, np.random.default_rng(seed)) for seed in range(8)]
        assert all(each.min() >= 0 and each.max() <= 1 for each in clouds)
        return float(np.mean([np.abs(np.diff(each)).mean() / each.std() for each in clouds]))

    assert roughness(1.4) > 1.5 * roughness(2) > 1.4 * roughness(3)


def test_snow_bleaches_and_falls_in_two_opposite_directions() -> None:
    images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)

    snowy = corrupt(images, "snow", 5, seed=0)

    floor = int((1 - 0.8) * 0.5 * 255)
    assert int(snowy.min()) >= floor
    assert (snowy > floor + 20).double().mean() > 0.1
    assert torch.equal(snowy, snowy.flip(2, 3))


def test_frost_adds_ice_of_its_weight_to_the_image() -> None:
    black, grey = (torch.full((4, 3, 32, 32), value, dtype=torch.uint8) for value in (0, 100))

    icy = [corrupt(each, "frost", 5, seed=0).double() for each in (black, grey)]

    assert 0.1 * 255 < float(icy[0].mean()) < 0.45 * 255
    assert float(icy[0].max()) <= 0.45 * 255
    assert float((icy[1] - icy[0]).mean()) == pytest.approx(75, abs=8)


def test_mud_covers_and_water_brightens() -> None:
    white, black = (torch.full((8, 3, 64, 64), value, dtype=torch.uint8) for value in (255, 0))

    muddy = corrupt(white, "spatter", 5, seed=0).permute(0, 2, 3, 1).reshape(-1, 3)
    wet = corrupt(black, "spatter", 1, seed=0)

    covered = muddy[(muddy < 255).all(dim=1)]
    assert 0.02 < len(covered) / len(muddy) < 0.6
    assert covered.amin(dim=0).tolist() == pytest.approx([63, 42, 20], abs=1)
    assert 0 < float((wet > 0).double().mean()) < 0.9
    assert (wet[:, 0] <= wet[:, 1]).all(), "water is turquoise"


def test_an_affine_map_moves_the_corners_of_the_square_as_far_as_they_were_drawn() -> None:
    image = np.zeros((3, 30, 30))
    image[:, 25, 25] = 1  # the first corner, a third of the side from the middle

    moved = move_corners(image, np.array([[2, -3], [2, -3], [2, -3]]))

    assert np.argwhere(moved[0] > 0.5).tolist() == [[27, 22]]
