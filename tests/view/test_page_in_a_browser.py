"""The page in a real browser: drawn, quiet, offline, and no wider than the screen."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codedgrad.schemes import fractional, uncoded
from codedgrad.view import write_page

Make = Callable[..., Path]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FOUND = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
    "--window-size=1500,1000",
)
HOSTILE = "</script><img src=x onerror=\"document.title='gone'\"><b>bold"
SLOW = [[0.02, 0.02, 0.02, 0.3], [0.02, 0.05, 0.02, 0.2]] * 20

pytestmark = [
    pytest.mark.skipif(FOUND is None, reason=f"none of {', '.join(BROWSERS)} is here"),
    pytest.mark.timeout(300),
]


@dataclass
class Seen:
    """What a browser made of a page.

    Attributes:
        dom: The document at the end.
        console: What the page said on the console, or was told there.
        asked: Addresses that the page, not the browser itself, asked the network for.
    """

    dom: str
    console: list[str]
    asked: list[str]

    @property
    def drawn(self) -> str:
        """The document without its scripts, which hold the same words."""
        return re.sub(r"<script.*?</script>", "", self.dom, flags=re.DOTALL)

    @property
    def told(self) -> Any:
        """What a probe in the page has found, put into the title."""
        title = re.search("<title>(.*?)</title>", self.dom, re.DOTALL)
        assert title is not None
        return json.loads(html.unescape(title[1]))


Browse = Callable[..., Seen]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a page and wait until it is done."""

    def browse(page: Path, *flags: str) -> Seen:
        log = tmp_path / "net.json"
        own = f"--user-data-dir={tmp_path / 'browser'}", f"--log-net-log={log}"
        command = [str(FOUND), *FLAGS, *own, *flags, "--dump-dom", page.as_uri()]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr
        said = [line for line in run.stderr.splitlines() if "CONSOLE" in line]
        return Seen(run.stdout, said, asked(log))

    return browse


def asked(log: Path) -> list[str]:
    """Return what pages asked for; the browser's own requests have no origin."""
    lines = [line for line in log.read_text().splitlines() if '"initiator":' in line]
    pages = [line for line in lines if '"initiator":"not an origin"' not in line]
    return [url for line in pages for url in re.findall(r'"url":"([^"]*)"', line)]


@pytest.fixture
def page(make_run: Make, tmp_path: Path) -> Path:
    """A page about two runs, one of which has a name that means harm."""
    runs = [
        make_run(uncoded(4), SLOW, "waiting for all", "waiting"),
        make_run(fractional(4, tolerance=1), SLOW, HOSTILE, "coded"),
    ]
    write_page(runs, tmp_path / "page.html")
    return tmp_path / "page.html"


def without_policy(page: Path, name: str, script: str) -> Path:
    """Return a copy in which any script may run, and in which this one does."""
    text = page.read_text()
    bare = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert bare != text
    copy = page.with_name(name)
    copy.write_text(bare.replace("</body>", f"<script>{script}</script></body>"))
    return copy


PROBE = """
const wait = setInterval(() => {
  if (document.body.dataset.drawn === undefined) return;
  clearInterval(wait);
  setTimeout(() => {
    const plots = [...document.querySelectorAll(".plot")];
    const seconds = plots[0];
    const before = seconds._fullLayout.yaxis.type;
    const other = seconds.closest("section").querySelector("[aria-pressed=false]");
    other.click();
    const tick = seconds.querySelector(".xtick text");
    const told = {
      drawn: Number(document.body.dataset.drawn),
      inner: window.innerWidth,
      page: document.documentElement.scrollWidth,
      wide: plots.map((p) => p.querySelector(".main-svg").clientWidth - p.clientWidth),
      scale: [before, seconds._fullLayout.yaxis.type],
      title: document.title,
      images: document.querySelectorAll("img").length,
      ink: getComputedStyle(tick).fill,
      paper: getComputedStyle(document.querySelector("main > section")).backgroundColor,
    };
    if (window.parent === window) document.title = JSON.stringify(told);
    else window.parent.postMessage(told, "*");
  }, 500);
}, 50);
"""


def test_every_figure_is_drawn_and_the_console_is_quiet(
    page: Path, browse: Browse
) -> None:
    seen = browse(page)
    assert seen.console == []
    assert seen.asked == []
    drawn = seen.drawn
    plots = drawn.count('data-figure="')
    assert plots == 1 + 2 + 2 + 3 + 1
    assert f'data-drawn="{plots}"' in drawn
    assert drawn.count('class="main-svg"') >= plots
    assert drawn.count("<image ") >= 2 + 1  # heat maps: of two runs, and of who is late
    assert drawn.count('class="trace bars"') >= 1 + 2 + 2
    assert drawn.count('class="js-line"') >= 4 * 2
    assert "modebar-btn" not in drawn


def test_what_goes_wrong_in_a_page_is_noticed(page: Path, browse: Browse) -> None:
    script = "console.error('on purpose'); new Image().src = 'http://a.test/x.png'"
    seen = browse(without_policy(page, "wrong.html", script))
    assert any("on purpose" in line for line in seen.console)
    assert seen.asked == ["http://a.test/x.png"]


def test_the_policy_lets_no_other_script_run(page: Path, browse: Browse) -> None:
    copy = page.with_name("added.html")
    added = "<script>document.title = 'gone'</script></body>"
    copy.write_text(page.read_text().replace("</body>", added))
    seen = browse(copy)
    assert "<title>gone</title>" not in seen.dom
    assert any("Content Security Policy" in line for line in seen.console)


def test_it_fits_a_laptop_and_a_phone_and_obeys_no_name(
    page: Path, browse: Browse
) -> None:
    copy = without_policy(page, "probed.html", PROBE)
    frames = "".join(
        f'<iframe src="{copy.name}" style="width:{width}px;height:900px"></iframe>'
        for width in (1280, 420)
    )
    listen = (
        "const all = []; onmessage = (e) => { all.push(e.data);"
        " document.title = JSON.stringify(all); };"
    )
    both = page.with_name("both.html")
    both.write_text(
        f"<!doctype html><title>[]</title><style>iframe {{border: 0}}</style>"
        f"<script>{listen}</script>{frames}"
    )
    seen = browse(both)
    assert seen.console == []
    assert seen.asked == []
    phone, laptop = sorted(seen.told, key=lambda told: told["inner"])
    assert (phone["inner"], laptop["inner"]) == (420, 1280)
    for told in (phone, laptop):
        assert told["drawn"] == 9
        assert told["page"] <= told["inner"]
        assert max(told["wide"]) <= 0
        assert told["title"].startswith("waiting for all and </script><img")
        assert told["images"] == 0
        assert sorted(told["scale"]) == ["linear", "log"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_can_be_read_by_day_and_by_night(
    page: Path, browse: Browse, scheme: str
) -> None:
    number = {"dark": 0, "light": 1}[scheme]
    copy = without_policy(page, "probed.html", PROBE)
    seen = browse(copy, f"--blink-settings=preferredColorScheme={number}")
    assert seen.console == []
    ink, paper = luminance(seen.told["ink"]), luminance(seen.told["paper"])
    assert (ink < paper) == (scheme == "light")
    light, dark = max(ink, paper), min(ink, paper)
    assert (light + 0.05) / (dark + 0.05) > 7


def luminance(colour: str) -> float:
    """Return the relative luminance of an `rgb(...)`, as WCAG defines it."""
    channels = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels
    ]
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
