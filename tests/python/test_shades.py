"""Shades of the page's tables and maps: their text can be read, in light and in dark."""

import re

import pytest

from linkscope.report.html import template_text

LEAST = 4.5  # WCAG 2.1 AA


def luminance(colour: str) -> float:
    """The relative luminance of '#rrggbb' or '#rgb' (WCAG 2.1)."""
    digits = "".join(2 * digit for digit in colour[1:]) if len(colour) == 4 else colour[1:]
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_has_its_known_ends() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21) and contrast("#777", "#777777") == pytest.approx(1)


@pytest.mark.parametrize("number", range(7))
def test_the_text_of_every_shade_has_enough_contrast_in_light_and_dark(number: int) -> None:
    css = template_text("figure.css")
    shades, texts = (re.findall(rf"--{letter}{number}: (#\w+);", css) for letter in "ht")
    assert len(shades) == len(texts) == 2
    for shade, text in zip(shades, texts, strict=True):
        assert contrast(shade, text) >= LEAST, (shade, text, contrast(shade, text))
