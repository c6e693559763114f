"""Pictures of pages of `bringup report`, and whether they fit a narrow screen. Needs Chromium; `make test` does not.

    python docs/results/pictures/take.py PAGE... --into FOLDER      # or: make pictures PAGES="PAGE..."

Of each page: 1,280 px light and dark, 400 px, and as printed, PDF. Exit code 1: a page is wider than
400 px. The page itself forbids scripts: a copy without that rule measures its own width.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image  # comes with matplotlib

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
NARROW_PX, WIDE_PX = 400, 1280
HEIGHT_PX = 1600  # two screens
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
TELL = "<script>parent.postMessage(document.documentElement.scrollWidth, '*')</script></body>"
FRAME = (
    '<!doctype html><body style="margin:0"><iframe src="{page}" style="border:0;width:{width}px;height:{height}px">'
    "</iframe><script>addEventListener('message', event => document.title = 'width ' + event.data)</script>"
)


def chromium(*arguments: str) -> str:
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        sys.exit(f"none of {', '.join(CHROMIUM)} is on PATH; on Debian: apt-get install chromium")
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=10000")
    done = subprocess.run([program, *common, *arguments], capture_output=True, text=True, check=True, timeout=300)
    return done.stdout


def narrow(page: Path, folder: Path) -> Path:
    """The page in a frame of a phone's width: a window cannot be made that narrow."""
    copy, frame = folder / "page.html", folder / "frame.html"
    text = POLICY.sub("", page.read_text(encoding="utf-8")).replace("</body>", TELL)
    copy.write_text(text, encoding="utf-8")
    frame.write_text(FRAME.format(page=copy.name, width=NARROW_PX, height=HEIGHT_PX), encoding="utf-8")
    return frame


def width_px(frame: Path) -> int:
    """What the page needs, measured by itself."""
    found = re.search(r"<title>width (\d+)</title>", chromium("--dump-dom", frame.as_uri()))
    if found is None:
        sys.exit(f"{frame}: the page did not say its width")
    return int(found[1])


def take(page: Path, into: Path) -> int:
    """Writes the pictures; returns the width in px that the page needs on a narrow screen."""
    wide = f"--window-size={WIDE_PX},{HEIGHT_PX}"
    stem, address = into / page.stem, page.resolve().as_uri()
    chromium(f"--screenshot={stem}.png", wide, address)
    dark = "--blink-settings=preferredColorScheme=0"
    chromium(f"--screenshot={stem}-dark.png", dark, wide, address)
    chromium(f"--print-to-pdf={stem}.pdf", "--no-pdf-header-footer", address)
    with tempfile.TemporaryDirectory(prefix="bringup-pictures-") as folder:
        frame = narrow(page, Path(folder))
        chromium(f"--screenshot={stem}-narrow.png", f"--window-size={NARROW_PX},{HEIGHT_PX}", frame.as_uri())
        for picture in (f"{stem}.png", f"{stem}-dark.png", f"{stem}-narrow.png"):
            small(Path(picture))
        return width_px(frame)


def small(picture: Path) -> None:
    """In 64 colours: a third of the size, and no difference to see."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(64).save(picture, optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--into", type=Path, default=Path(), metavar="FOLDER")
    arguments = parser.parse_args()
    arguments.into.mkdir(parents=True, exist_ok=True)
    too_wide = False
    for page in arguments.pages:
        width = take(page, arguments.into.resolve())
        too_wide = too_wide or width > NARROW_PX
        print(f"{page}: {width} px wide at {NARROW_PX} px" + (": it scrolls sideways" if width > NARROW_PX else ""))
    return int(too_wide)


if __name__ == "__main__":
    sys.exit(main())
