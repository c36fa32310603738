"""Screenshots of every page, light, dark and narrow, into docs/screenshots/: `make screenshots`.

Shows the data directory's results (SOUNDING_DATA), else the bundled sweeps. SOUNDING_SWEEP picks a sweep.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image  # Streamlit depends on it
from playwright.sync_api import sync_playwright

from tests.browser.viewer_server import PAGES, ROOT, WITH_CHART, launch, settle, viewer

LOOKS = {"light": ("light", 1280), "dark": ("dark", 1280), "narrow": ("light", 360)}


def in_256_colours(picture: Image.Image) -> Image.Image:
    """A picture that makes a smaller file: its 64 commonest colours as they are (backgrounds), 192 for the rest."""
    common = sorted(picture.getcolors(picture.width * picture.height) or [], reverse=True)[:64]
    rest = picture.quantize(192, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).getpalette() or []
    palette = np.array([*(colour for _, colour in common), *np.reshape(rest, (-1, 3))])
    colours, place = np.unique(np.asarray(picture).reshape(-1, 3), axis=0, return_inverse=True)
    nearest = [int(((palette - colour) ** 2).sum(axis=1).argmin()) for colour in colours.astype(int)]
    small = Image.fromarray(np.array(nearest, dtype=np.uint8)[place].reshape(picture.height, picture.width), "P")
    small.putpalette(palette.astype(np.uint8).tobytes())
    return small


def main(target: Path) -> None:
    """Take them all."""
    target.mkdir(parents=True, exist_ok=True)
    sweep = os.environ.get("SOUNDING_SWEEP")
    settings = {name: os.environ[name] for name in ("SOUNDING_DATA", "SOUNDING_DB") if name in os.environ}
    with (
        tempfile.TemporaryDirectory() as scratch,
        viewer(settings, Path(scratch) / "log") as address,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        for look, (scheme, width) in LOOKS.items():
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
            for path, title in PAGES.items():
                page.goto(f"{address}/{path}" + (f"?sweep={sweep}" if sweep else ""))
                settle(page, title, chart=False)
                if path in WITH_CHART:
                    page.wait_for_timeout(1200)
                page.wait_for_timeout(500)
                height = page.evaluate(
                    "document.querySelector('[data-testid=stMainBlockContainer]').getBoundingClientRect().height"
                )
                page.set_viewport_size({"width": width, "height": min(3600, int(height) + 20)})
                page.wait_for_timeout(700)
                file = target / f"{path or 'overview'}-{look}.png"
                page.screenshot(path=file)
                page.set_viewport_size({"width": width, "height": 900})
                with Image.open(file) as picture:
                    in_256_colours(picture.convert("RGB")).save(file, optimize=True)
                print(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file, file.stat().st_size // 1024, "KiB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "screenshots")
