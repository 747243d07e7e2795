#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the software GPU with what a real one left in memory (recordings.xz).

    differential.py [--only TEXT] [--all]        compare; a form that differs is named with its first values
    differential.py --self                       record the software GPU itself and compare: must be equal
    differential.py --status FILE                write the status page
    differential.py --check-status FILE          fail unless the page is current
"""

import argparse
import os
import pathlib
import sys
import tempfile

import engine
import forms
import status

ROOT = engine.HERE.parent.parent.parent
SKIP = 77


def soft(every, build):
    towline = build / "bin" / "towline"
    return engine.run(every, prefix=(str(towline), "run", "-s", "self:", "--"))[0]


def judge(every, results, recorded, show):
    """{name: (word, detail)}: equal, bound, differs, refused, failed, unrecorded, native."""
    verdicts = {}
    for form in every:
        code, data = results[form.name]
        digest, native, wanted = recorded.get(form.name, ("", 0, b""))
        if code:
            word = "refused" if code == 222 or b"NOT_SUPPORTED" in data or b"does not run" in data else "failed"
            verdicts[form.name] = (word, data.decode(errors="replace").strip())
        elif digest != form.digest():
            verdicts[form.name] = ("unrecorded", "")
        elif native:
            verdicts[form.name] = ("native", wanted)
        else:
            wrong = engine.compare(form, data, wanted)
            if wrong:
                more = "" if len(wrong) <= show else f" (and {len(wrong) - show} more)"
                verdicts[form.name] = ("differs", "; ".join(wrong[:show]) + more)
            else:
                verdicts[form.name] = ("equal" if data == wanted else "bound", form.bound)
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("TOWLINE_BUILD", ROOT / "build")))
    parser.add_argument("--only")
    parser.add_argument("--show", type=int, default=1, help="differing values shown of each form")
    parser.add_argument("--recordings", type=pathlib.Path, default=engine.RECORDINGS)
    parser.add_argument("--self", action="store_true")
    parser.add_argument("--status", type=pathlib.Path)
    parser.add_argument("--check-status", type=pathlib.Path)
    args = parser.parse_args()
    every = [form for form in forms.table() if not args.only or args.only in form.name]
    if not args.self and not args.recordings.exists():
        print(f"no recordings: tests/gpu/record-ptx makes them on a machine with a GPU ({args.recordings})")
        return SKIP
    results = soft(every, args.build)
    if args.self:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "recordings.xz"
            print(f"{engine.save(path, every, results, {'gpu': 'software'})} bytes recorded")
            header, recorded = engine.load(path)
            again = soft(every, args.build)
            verdicts = judge(every, again, recorded, args.show)
    else:
        header, recorded = engine.load(args.recordings)
        verdicts = judge(every, results, recorded, args.show)
    counts, failed, known = {}, False, forms.known()
    for form in every:
        word, detail = verdicts[form.name]
        if word == "differs" and form.name in known and not args.self:
            word = "known"
            verdicts[form.name] = (word, known[form.name])
        elif word in ("equal", "bound") and form.name in known and not args.self:
            print(f"no longer differs, strike it from {forms.KNOWN.name}: {form.name}")
            failed = True
        counts[word] = counts.get(word, 0) + 1
        if word in ("differs", "failed", "refused"):
            print(f"{word}: {form.name}: {detail}")
            failed = failed or word != "refused"
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    if args.status or args.check_status:
        page = status.page(every, verdicts, header)
        if args.status:
            args.status.write_text(page)
        elif args.check_status.read_text() != page:
            print(f"{args.check_status} is not current: run tests/ptx/differential/differential.py --status {args.check_status}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
