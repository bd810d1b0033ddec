"""The soak's judgement: growth is noticed, noise is not, and the picture is a picture."""

import unittest
import xml.dom.minidom
from dataclasses import replace

from mixture import HOSTILE, hostile, mixed
from picture import draw
from samples import BOUNDS, MIB, Sample, growth

FLAT = [Sample(float(n), "mixed", n, 40 * MIB, 4 * MIB, 60, 30, 40, 10 * MIB) for n in range(30)]


class Growth(unittest.TestCase):
    def test_a_flat_load_passes(self) -> None:
        self.assertEqual(growth(FLAT), [])

    def test_noise_is_no_growth(self) -> None:
        noisy = [replace(sample, server_memory=(40 + n % 7) * MIB, groups=40 + n % 9) for n, sample in enumerate(FLAT)]
        self.assertEqual(growth(noisy), [])

    def test_each_figure_that_grows_is_named(self) -> None:
        for name, (_, constant) in BOUNDS.items():
            grown = [replace(sample, **{name: getattr(sample, name) + n * constant}) for n, sample in enumerate(FLAT)]
            self.assertEqual([what.split()[0] for what in growth(grown)], [name])

    def test_too_few_samples_are_no_proof(self) -> None:
        self.assertEqual(len(growth(FLAT[:2])), 1)


class Pictures(unittest.TestCase):
    def test_a_picture_is_well_formed(self) -> None:
        changed = [*FLAT, replace(FLAT[-1], at=31.0, phase="after <all>")]
        for samples in ([], FLAT[:1], changed):
            xml.dom.minidom.parseString(draw(samples, "runs & jobs"))


class Mixtures(unittest.TestCase):
    def test_the_mixture_has_every_language_and_every_hostile_program(self) -> None:
        names = {mixed(1, number).name for number in range(2000)}
        self.assertEqual(names, {"python", "javascript", "bash", "c", *HOSTILE})

    def test_hostile_programs_are_bounded(self) -> None:
        for name in HOSTILE:
            self.assertIn("wall_time", hostile(name).request["limits"])


if __name__ == "__main__":
    unittest.main()
