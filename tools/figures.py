#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/figures.svg from the table of docs/performance.md: how long programs take through Towline, beside natively.

    tools/figures.py             writes docs/figures.svg
    tools/figures.py --print     to stdout
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
# Rows of the table, by their first words, and what a reader is told they are. All are times: less is better.
ROWS = (("PyTorch first tensor", "PyTorch, first tensor"), ("PyTorch CNN training step", "CNN, training step"),
        ("transformer forward, fp16", "transformer, forward"), ("transformer training step", "transformer, training step"),
        ("GPT-2, 64 tokens", "GPT-2, 64 tokens"), ("GPT-2 training step", "GPT-2, training step"),
        ("20,000 launches until drained, each", "20,000 kernels in a row"), ("launch + sync", "one kernel, waited for"))
WIDTH, LEFT, TOP, LINE, BAR = 760, 190, 62, 46, 14
SCALE = (WIDTH - LEFT - 90) / 3  # of native's time: three times of it is the right edge
STYLE = """
text { font: 13px sans-serif; fill: #24292f } .small { font-size: 11px; fill: #57606a } .head { font-weight: bold }
.shm { fill: #1a7f37 } .tcp { fill: #0969da } .native { stroke: #57606a; stroke-dasharray: 4 3 } .ground { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .shm { fill: #3fb950 } .tcp { fill: #58a6ff } .native { stroke: #9198a1 } .ground { fill: #0d1117 } }
"""


def figures():
    """For each row its name, natively's time as written, and the ratios over shm and tcp."""
    text = PAGE.read_text().partition("## Measured on an H200")[2]
    for start, name in ROWS:
        line = next((line for line in text.splitlines() if line.startswith(f"| {start} |")), None)
        if line is None:
            sys.exit(f"{PAGE} has no row that begins with {start!r}")
        native, *others = [cell.strip() for cell in line.split("|")[2:5]]
        ratios = [re.search(r"\(([0-9.]+)", cell) for cell in others]
        if not all(ratios):
            sys.exit(f"{PAGE}: the row {start!r} has no ratios to native")
        yield name, native, [float(ratio.group(1)) for ratio in ratios]


def draw():
    rows = list(figures())
    height = TOP + LINE * len(rows) + 34
    one = LEFT + SCALE
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
           'aria-label="Times of programs through Towline, natively 1">', f"<style>{STYLE}</style>",
           f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
           '<text x="12" y="24" class="head">Time through Towline, natively 1 (less is better)</text>',
           f'<rect class="shm" x="{LEFT}" y="36" width="10" height="10"/><text class="small" x="{LEFT + 15}" y="45">server on the same machine</text>',
           f'<rect class="tcp" x="{LEFT + 200}" y="36" width="10" height="10"/><text class="small" x="{LEFT + 215}" y="45">over TCP (loopback)</text>']
    bottom = TOP + LINE * len(rows)
    out.append(f'<line class="native" x1="{one:.1f}" x2="{one:.1f}" y1="{TOP - 4}" y2="{bottom}"/>')
    for i, (name, native, ratios) in enumerate(rows):
        y = TOP + LINE * i
        out.append(f'<text x="{LEFT - 10}" y="{y + 17}" text-anchor="end">{name}</text>')
        out.append(f'<text class="small" x="{LEFT - 10}" y="{y + 31}" text-anchor="end">natively {native}</text>')
        for k, (kind, ratio) in enumerate(zip(("shm", "tcp"), ratios)):
            width, top = SCALE * min(ratio, 3), y + 4 + k * (BAR + 2)
            out.append(f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR}"/>')
            # The line of native's time does not run through the number.
            out.append(f'<rect class="ground" x="{LEFT + width + 2:.1f}" y="{top}" width="30" height="{BAR}"/>')
            out.append(f'<text class="small" x="{LEFT + width + 5:.1f}" y="{top + 11}">{ratio:.2f}</text>')
    out.append(f'<text class="small" x="{one:.1f}" y="{bottom + 14}" text-anchor="middle">natively</text>')
    out.append(f'<text class="small" x="{LEFT}" y="{bottom + 28}">one H200, PyTorch 2.11; from the table in docs/performance.md</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(draw())
    else:
        (ROOT / "docs" / "figures.svg").write_text(draw())


if __name__ == "__main__":
    main()
