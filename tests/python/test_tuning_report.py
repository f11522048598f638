"""The page of `hattn tune --report`, as a browser shows it."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import pytest

matplotlib = pytest.importorskip("matplotlib")
from PIL import Image  # noqa: E402  (comes with matplotlib)

from hattn import _hattn  # noqa: E402
from hattn._tuning import report, session, shapes  # noqa: E402

CHARTS = 5
WIDTH, HEIGHT = 1200, 1800


@pytest.fixture(scope="module")
def measured():
    """Results of a few problems that take no time, and the machine."""
    tuner = _hattn.Tuner(1)
    problems = shapes.grid((1, 16), (32, 64), ((32, 1), (64, 2)))
    problems.append(shapes.Problem([{**problems[0].shapes[0], "mask": True}]))
    options = session.Options(seconds=0.8)
    results = list(session.run(problems, None, tuner, options))
    assert len(results) >= 4
    return results, json.loads(tuner.machine())


@pytest.fixture(scope="module")
def page(measured, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write(path, *measured)
    return path


def test_is_self_contained(page):
    text = page.read_text()
    assert len(re.findall("<svg", text)) == CHARTS
    # Names of namespaces and licences are no requests.
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"|url\((?!#)[^)]*\)|@import|<script', text)


def test_charts_are_well_formed(page):
    for svg in re.findall(r"<svg.*?</svg>", page.read_text(), flags=re.DOTALL):
        assert len(list(ElementTree.fromstring(svg).iter())) > 50


def test_the_same_results_make_the_same_page(measured, tmp_path):
    """Titles are text, whatever mathematics would make of them."""
    results, machine = measured
    titled = [{**result, "title": "a $x_{$ title"} for result in results]
    for name in ("one.html", "two.html"):
        report.write(tmp_path / name, titled, machine)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_maps_are_by_hooks(page):
    assert len(re.findall(r"1 query heads per kv head, mask", page.read_text())) == 2


def result_with(candidates, gain=1.0, replaces=False, threads=1):
    """A result of which the first candidate is the default: algorithms, speeds, and medians of their own rounds."""
    rows = [
        {
            "choice": {"algorithm": algorithm, "tile": {"rows": 4, "keys": 32}, "split_keys": 0},
            "plan": f"{algorithm}_kernel/0",
            "refused": "",
            "speed": speed,
            "times": [{"shape": 0, "caches": "warm", "seconds": seconds}],
        }
        for algorithm, speed, seconds in candidates
    ]
    speeds = [speed for _, speed, _ in candidates]
    family = {"target": "generic", "dtype": "float32", "head": 64, "group": 1, "hooks": []}
    return {
        "title": "1 x 64",
        "candidates": rows,
        "fastest": speeds.index(max(speeds)),
        "replaces_default": replaces,
        "noise": 1.05,
        "threads": threads,
        "work": [{"flops": 1e6, "bytes": 1e3}],
        "entry": {"class": {**family, "rows": 1, "keys": 64}, "gain": gain},
    }


def test_times_are_by_what_was_judged_by():
    """Ratios to the default in the same rounds, whatever the medians of other rounds say."""
    result = result_with([("flash", 1.0, 2e-3), ("split_kv", 1.25, 3e-3), ("naive", 0.5, 1e-3)], 1.25, True)
    times = [report._seconds(result, candidate) for candidate in result["candidates"]]
    assert times == pytest.approx([2e-3, 1.6e-3, 4e-3])


@pytest.mark.parametrize("replaces, algorithm", [(True, "split_kv"), (False, "flash")])
def test_the_map_is_of_what_was_chosen(replaces, algorithm):
    pyplot = report._pyplot()
    result = result_with([("flash", 1.0, 2e-3), ("split_kv", 1.03, 3e-3), ("naive", 0.5, 1e-3)], 1.03, replaces)
    figure = report.crossover_chart(pyplot, [result])
    (colour,) = figure.axes[0].collections[0].get_facecolors()
    pyplot.close(figure)
    assert matplotlib.colors.to_hex(colour) == report.COLOURS[algorithm]


def test_axes_of_maps_have_numbers():
    """At the sizes that were measured, as text is drawn: some ten of them, none on top of another."""
    pyplot = report._pyplot()
    results = []
    for rows in (1, 4, 32):
        for keys in (2**n for n in range(4, 17)):
            result = result_with([("flash", 1.0, 2e-3)])
            result["entry"]["class"].update(rows=rows, keys=keys)
            results.append(result)
    for chart in (report.crossover_chart, report.tile_chart):
        figure = chart(pyplot, results)
        figure.canvas.draw()
        for axis, sizes in ((figure.axes[0].xaxis, {2**n for n in range(4, 17)}), (figure.axes[0].yaxis, {1, 4, 32})):
            labels = [label for label in axis.get_ticklabels(which="both") if label.get_text()]
            assert len(labels) >= 3 and {int(label.get_text()) for label in labels} <= sizes
            boxes = [label.get_window_extent() for label in labels]
            assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])
        pyplot.close(figure)


def test_the_page_has_no_markup_of_text(page):
    assert "mathdefault" not in page.read_text()


def test_limits_are_of_the_threads_that_a_result_was_measured_with():
    pyplot = report._pyplot()
    machine = {"flops_per_second": 1e9, "threads": 8, "levels": [{"bytes": 1e9, "bytes_per_second": 1e12}]}
    results = [result_with([("flash", 1.0, 2e-3)], threads=threads) for threads in (1, 2)]
    figure = report.limit_chart(pyplot, results, machine)
    shares = [bar.get_width() for bar in figure.axes[0].patches]
    pyplot.close(figure)
    assert shares == pytest.approx([50.0, 25.0])


def test_needs_results(tmp_path):
    with pytest.raises(ValueError, match="no measurements"):
        report.write(tmp_path / "report.html", [], {})
    assert not (tmp_path / "report.html").exists()


def test_in_a_browser(page, tmp_path):
    """Nothing is blank, and nothing is said on the console."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium here; ./dev test installs it")
    screenshot = tmp_path / "page.png"
    browser = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={screenshot}",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert browser.returncode == 0, browser.stderr
    assert "CONSOLE" not in browser.stderr, browser.stderr
    image = Image.open(screenshot).convert("RGB")
    assert image.size == (WIDTH, HEIGHT)
    colours = {colour for _, colour in image.getcolors(maxcolors=1 << 24)}
    for colour in report.COLOURS.values():
        wanted = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
        if colour in page.read_text():
            assert wanted in colours, f"{colour} is in the page, but not on the screen"
    # The page is higher than the window, and each fifth of the window holds something.
    for at in range(5):
        part = image.crop((0, at * HEIGHT // 5, WIDTH, (at + 1) * HEIGHT // 5)).convert("L")
        assert sum(part.histogram()[:128]) > 500, f"part {at} of the page is blank"
