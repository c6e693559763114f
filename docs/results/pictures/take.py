"""Pictures of pages of `bringup report`, and checks of them. Needs Chromium and poppler-utils; `make test` does not.

    python docs/results/pictures/take.py PAGE... --into FOLDER      # or: make pictures PAGES="PAGE..."

Of each page: 1,280 px light and dark, 400 px, and as printed, PDF. Exit code 1: a page is wider than 400 px, its
print does not hold all of its text or is dark, or, with --screens, it is longer at 1,280 px than as many screens of
900 px, or, with --sheets, its print has more. The page itself forbids scripts: a copy without that rule measures its
own size.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

from PIL import Image

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
NARROW_PX, WIDE_PX = 400, 1280
SCREEN_PX = 900
HEIGHT_PX = 2 * SCREEN_PX  # of the pictures
DARK = "--blink-settings=preferredColorScheme=0"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE = """<script>
const page = document.documentElement;
parent.postMessage(page.scrollWidth + " " + document.body.getBoundingClientRect().height.toFixed(), "*");
</script></body>"""
FRAME = (
    '<!doctype html><body style="margin:0"><iframe src="{page}" style="border:0;width:{width}px;height:{height}px">'
    "</iframe><script>addEventListener('message', event => document.title = 'size ' + event.data)</script>"
)
NOT_PRINTED = ("head", "style", "title", "script")
NOT_ON_PAPER = {"contents", "screen"}  # classes
MAX_SHOWN = 5  # texts that are missing on paper


def program(*names: str, package: str) -> str:
    path = next((candidate for name in names if (candidate := shutil.which(name))), None)
    if path is None:
        sys.exit(f"none of {', '.join(names)} is on PATH; on Debian: apt-get install {package}")
    return path


def chromium(*arguments: str) -> str:
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=10000")
    command = [program(*CHROMIUM, package="chromium"), *common, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def framed(page: Path, width_px: int, folder: Path) -> Path:
    """The page in a frame of that width: a window cannot be made as narrow as a phone."""
    copy, frame = folder / "page.html", folder / f"frame-{width_px}.html"
    copy.write_text(POLICY.sub("", page.read_text(encoding="utf-8")).replace("</body>", MEASURE), encoding="utf-8")
    frame.write_text(FRAME.format(page=copy.name, width=width_px, height=HEIGHT_PX), encoding="utf-8")
    return frame


def size_px(frame: Path) -> tuple[int, int]:
    """Width and height that the page needs, measured by itself."""
    size = re.search(r"<title>size (\d+) (\d+)</title>", chromium("--dump-dom", frame.as_uri()))
    if size is None:
        sys.exit(f"{frame}: the page did not report its size")
    return int(size[1]), int(size[2])


class Texts(HTMLParser):
    """The texts between the tags of a page's body that are printed, each without white space: of closed details the
    summary alone."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = set((given.get("class") or "").split())
        is_closed = tag == "details" and "open" not in given and "printed" not in classes
        is_in_closed = self._inside[-1:] == ["closed"] and tag != "summary"
        if tag not in ("meta", "input"):
            is_hidden = tag in NOT_PRINTED or classes & NOT_ON_PAPER or is_in_closed
            self._inside.append("hidden" if is_hidden else "closed" if is_closed else tag)

    def handle_endtag(self, tag: str) -> None:
        self._inside.pop()

    def handle_data(self, data: str) -> None:
        if "hidden" not in self._inside and data.strip():
            self.texts.append(dense(data))


def dense(text: str) -> str:
    """Without white space and ligatures: lines are broken at other places on paper."""
    return "".join(unicodedata.normalize("NFKC", text).replace("\N{SOFT HYPHEN}", "").split())


def print_faults(page: Path, pdf: Path, most_sheets: int | None) -> list[str]:
    """Texts of the page that its print does not have, a dark ground, and too many sheets."""
    pdftotext = program("pdftotext", package="poppler-utils")
    pdftoppm = program("pdftoppm", package="poppler-utils")
    shown = subprocess.run([pdftotext, "-raw", pdf, "-"], capture_output=True, text=True, check=True).stdout
    paper, sheets = dense(shown.replace("\f", "")), shown.count("\f")
    print(f"{page}: {sheets} sheets")
    missing = [text for text in Texts(page.read_text(encoding="utf-8")).texts if text not in paper]
    faults = [f"not on paper: {text[:80]}" for text in missing[:MAX_SHOWN]]
    faults += [f"not on paper: {len(missing) - MAX_SHOWN} more texts"] if len(missing) > MAX_SHOWN else []
    picture = pdf.with_suffix("")
    subprocess.run([pdftoppm, "-r", "60", "-png", "-singlefile", pdf, picture], check=True)
    with Image.open(f"{picture}.png") as first:
        greys = first.convert("L").histogram()
    if most_sheets is not None and sheets > most_sheets:
        faults.append(f"its print has more than {most_sheets} sheets")
    is_light = max(greys) == greys[255]  # most of it; a margin is white on a dark page too
    return faults if is_light else [*faults, "its ground is printed dark"]


def take(page: Path, into: Path, screens: float | None, sheets: int | None) -> list[str]:
    """Writes the pictures; returns what is wrong with the page."""
    wide = f"--window-size={WIDE_PX},{HEIGHT_PX}"
    stem, address = into / page.stem, page.resolve().as_uri()
    chromium(f"--screenshot={stem}.png", wide, address)
    chromium(f"--screenshot={stem}-dark.png", DARK, wide, address)
    printed = into / f"{page.stem}-print.pdf"
    chromium(f"--print-to-pdf={printed}", "--no-pdf-header-footer", DARK, address)
    with tempfile.TemporaryDirectory(prefix="bringup-pictures-") as folder:
        frame = framed(page, NARROW_PX, Path(folder))
        chromium(f"--screenshot={stem}-narrow.png", f"--window-size={NARROW_PX},{HEIGHT_PX}", frame.as_uri())
        narrow_px, _ = size_px(frame)
        _, height_px = size_px(framed(page, WIDE_PX, Path(folder)))
    for picture in (f"{stem}.png", f"{stem}-dark.png", f"{stem}-narrow.png"):
        small(Path(picture))
    length = height_px / SCREEN_PX
    print(f"{page}: {narrow_px} px wide at {NARROW_PX} px; {length:.1f} screens of {WIDE_PX} x {SCREEN_PX} px")
    faults = print_faults(page, printed, sheets)
    if narrow_px > NARROW_PX:
        faults.append(f"it scrolls sideways at {NARROW_PX} px")
    if screens is not None and length > screens:
        faults.append(f"it is longer than {screens:g} screens")
    return faults


def small(picture: Path) -> None:
    """In 64 colours: a third of the size, and no difference to see."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(64).save(picture, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--into", type=Path, default=Path(), metavar="FOLDER")
    parser.add_argument("--screens", type=float, metavar="N", help="a page that is longer is a fault")
    parser.add_argument("--sheets", type=int, metavar="N", help="a print that has more is a fault")
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    faults = [
        f"{page}: {fault}"
        for page in arguments.pages
        for fault in take(page, arguments.into.resolve(), arguments.screens, arguments.sheets)
    ]
    print(*faults, sep="\n", end="\n" if faults else "")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
