#!/usr/bin/env python3
"""Compares two outputs of `errors all`: compare_errors.py EXPECTED ACTUAL

`A / B` is a call that needs no reply and the synchronisation after it. A remote driver may answer such a
call with success and report its error at the synchronisation; so of such a pair only the first error
counts, unless both are errors. With --strict every word counts. Where EXPECTED says that the case kills
its process or is unsure (`# unsure`), a difference is shown but does not fail, unless --strict.
Prints each difference; the last line is `N equal, N different, N unsure`; exit code 1 if any is different.
"""

import argparse
import sys

SUCCESS = "CUDA_SUCCESS"


def read(path):
    """Returns {case: (answer, unsure)} in the order of the file."""
    cases = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            text, _, comment = line.partition("#")
            if ":" in text:
                name, _, answer = text.partition(":")
                cases[name.strip()] = (answer.strip(), "unsure" in comment)
    return cases


def meaning(answer):
    """A no-reply call's error and when it was seen are one thing."""
    first, slash, second = answer.partition(" / ")
    second, also, rest = second.partition(" and ")
    if slash and SUCCESS in (first, second):
        first = second if first == SUCCESS else first
        return f"{first}{also}{rest}"
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("expected")
    parser.add_argument("actual")
    parser.add_argument("--strict", action="store_true", help="every word counts, unsure ones too")
    args = parser.parse_args()
    expected, actual = read(args.expected), read(args.actual)
    equal = different = unsure = 0
    for name in list(expected) + [name for name in actual if name not in expected]:
        want, doubtful = expected.get(name, ("no such case", False))
        got, _ = actual.get(name, ("no answer", False))
        same = want == got if args.strict else meaning(want) == meaning(got)
        if same:
            equal += 1
            continue
        forgiven = not args.strict and (doubtful or "killed by signal" in want)
        unsure, different = unsure + forgiven, different + (not forgiven)
        print(f"{name}: expected {want}{' (unsure)' if forgiven else ''}, got {got}")
    print(f"{equal} equal, {different} different, {unsure} unsure")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
