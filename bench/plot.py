#!/usr/bin/env python3
"""Draws a summary of bench/compare.py as an SVG of bars. Needs nothing but Python.

    bench/plot.py bench/runs/<folder>/<model>-summary.json docs/speed.svg
"""
import html
import json
import pathlib
import statistics
import sys

COLOURS = {"cascadia": "#2a7f62", "cascadia, packed": "#7dbfa5", "llama.cpp": "#b0b7bf", "llama.cpp -fa off": "#d5dade",
           "ik_llama.cpp": "#c9a26b", "ik_llama.cpp -rtr 1": "#e3cba6"}
BAR, GAP, LABEL, WIDTH, RIGHT = 15, 14, 190, 420, 190


def draw(summary):
    """Every measurement has its own scale, because prefill and decode differ by more than a page."""
    parts, y = [], 42
    for what, speeds in summary["results"].items():
        medians = {who: statistics.median(values) for who, values in speeds.items() if who in COLOURS}
        if "cascadia" not in medians:
            continue
        most = max(max(values) for who, values in speeds.items() if who in COLOURS)
        middle = y + BAR * len(medians) / 2 + 4
        parts.append(f'<text x="{LABEL - 10}" y="{middle:.0f}" text-anchor="end">{html.escape(what)}</text>')
        for who, median in medians.items():
            low, high = (LABEL + WIDTH * value / most for value in (min(speeds[who]), max(speeds[who])))
            ratio = "" if who == "cascadia" else f" (cascadia {medians['cascadia'] / median:.2f}×)"
            parts.append(f'<rect x="{LABEL}" y="{y}" width="{WIDTH * median / most:.1f}" height="{BAR - 2}" '
                         f'fill="{COLOURS[who]}"/>')
            parts.append(f'<path d="M{low:.1f} {y + BAR / 2 - 1:.1f}H{high:.1f}" stroke="#222"/>')
            parts.append(f'<text x="{LABEL + WIDTH + 8}" y="{y + BAR - 4}">{median:.1f} {html.escape(who)}{ratio}</text>')
            y += BAR
        y += GAP
    title = f"{summary['model']}, {summary['threads']} threads: tokens per second, median and range"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + RIGHT + 90}" height="{y}" '
            'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n'
            f'<text x="{LABEL}" y="24" font-size="14">{html.escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    target.write_text(draw(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
