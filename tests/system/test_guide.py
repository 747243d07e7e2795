#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands of the guides, copied from the pages and run as they stand.

A block below `<!-- run on gpuhost -->` or `<!-- run on laptop -->` is one of these. `<!-- install on ... -->` is for packages, which
`make check-packages` has; here the build takes their place.
"""

import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import machines as m  # noqa: E402
import towtest as t  # noqa: E402

PAGE = t.ROOT / "docs" / "guide" / "first-hour.md"
TRAIN = "import ctypes\ncuda = ctypes.CDLL('libcuda.so.1')\nassert cuda.cuInit(0) == 0\nprint('trained')\n"


@t.test(180)
def the_first_hour():
    m.need()
    t.need_tls()
    program = t.build_c(t.ROOT / "examples" / "driver" / "vectoradd.c", ["-lcuda"], include=t.our_include_flags())
    first = m.blocks(PAGE)
    upto = next(i for i, (_, _, script) in enumerate(first) if "./app" in script)
    commands = [line for _, _, script in first[:upto + 1] for line in script.splitlines()]
    t.check(len(commands) <= 6, f"it takes {len(commands)} commands to the first result: {commands}")
    with tempfile.TemporaryDirectory(prefix="towline-guide-") as folder, m.two(folder) as both:
        shutil.copy(program, both["laptop"].home / "app")
        (both["laptop"].home / "train.py").write_text(TRAIN)
        m.follow(PAGE, both, ("run",))


@t.test()
def every_marked_block_is_run():
    """A mark in a page that no test reads would look as if it was tested."""
    marked = {page.name for page in [t.ROOT / "README.md", *(t.ROOT / "docs").rglob("*.md")] if m.MARK.search(page.read_text())}
    t.equal(marked, {"first-hour.md"}, "pages with marked blocks")


if __name__ == "__main__":
    t.main()
