"""Text on the page can be read: WCAG's contrast of each colour on its ground, light and dark, from the style sheet.

https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio; level AA asks for 4.5 of normal text.
"""

import re

import pytest
from bringup.report import render
from loops import for_each

AA = 4.5
CSS = "".join((render.TEMPLATES / name).read_text() for name in ("figure.css", "style.css"))
SCHEMES = dict(zip(("light", "dark"), re.findall(r":root \{([^}]*)\}", CSS), strict=True))


def luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    channels = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@for_each(*SCHEMES)
def test_text_on_the_page_and_on_cards(scheme):
    assert contrast("#000", "#fff") == pytest.approx(21), "the known ends"
    colours = dict(re.findall(r"--(\w+): (#\w+)", SCHEMES[scheme]))
    pairs = [(text, ground) for text in ("text", "soft", "link") for ground in ("ground", "raised")]
    assert [pair for pair in pairs if contrast(*(colours[name] for name in pair)) < AA] == []


def test_badges_and_squares():
    coloured = {
        selector.strip(): (ground[1], text[1])
        for selector, rules in re.findall(r"([^{}]+)\{([^{}]*)\}", CSS)
        if (ground := re.search(r"background: (#\w+)", rules)) and (text := re.search(r"(?<!-)color: (#\w+)", rules))
    }
    assert {".pass", ".warn", ".incomplete", ".fail"} <= set(coloured)
    assert {name: f"{contrast(*pair):.1f}" for name, pair in coloured.items() if contrast(*pair) < AA} == {}
