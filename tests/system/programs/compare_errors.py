#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two outputs of `errors`: compare_errors.py EXPECTED ACTUAL

`A / B` is a call that needs no reply and the synchronisation after it. A remote driver may answer such a
call with success and report its error at the synchronisation; so of such a pair only the first error
counts, unless both are errors. Where EXPECTED crashes or hangs, any error is right and success is shown but
does not fail; to crash or hang oneself is always wrong (unless --as-native: then it is equal). Where EXPECTED is
unsure (`# unsure`), a difference is shown but does not fail; nor where errors.expected marks the case
`# undefined`, whatever EXPECTED is. With --strict every word counts.
Prints each difference; the last line is `N equal, N different, N unsure`; exit code 1 if any is different.
"""

import argparse
import pathlib
import sys

SUCCESS = "CUDA_SUCCESS"
NO_ANSWER = ("crashes", "hangs", "no answer")


def undefined():
    """The cases that no driver need answer like another."""
    with open(pathlib.Path(__file__).with_name("errors.expected"), encoding="utf-8") as file:
        return {line.partition(":")[0] for line in file if "# undefined" in line}


UNDEFINED = undefined()


def read(path):
    """Returns {case: (answer, unsure)} in the order of the file."""
    cases = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            text, _, comment = line.partition("#")
            if ":" in text:
                name, _, answer = text.partition(":")
                cases[name.strip()] = (answer.strip(), "unsure" in comment or name.strip() in UNDEFINED)
    return cases


def meaning(answer):
    """A no-reply call's error and when it was seen are one thing."""
    first, slash, second = answer.partition(" / ")
    second, also, rest = second.partition(" and ")
    if slash and SUCCESS in (first, second):
        first = second if first == SUCCESS else first
        return f"{first}{also}{rest}"
    return answer


def judge(want, got, doubtful, strict, as_native):
    """(the same, different but forgiven)"""
    if strict or got in NO_ANSWER:
        return want == got and (strict or as_native or want not in NO_ANSWER), False
    if want in NO_ANSWER:
        return "CUDA_ERROR" in got, True
    return meaning(want) == meaning(got), doubtful


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("expected")
    parser.add_argument("actual")
    parser.add_argument("--strict", action="store_true", help="every word counts, unsure ones too")
    parser.add_argument("--as-native", action="store_true", help="the same driver answered both: it may hang twice")
    args = parser.parse_args()
    expected, actual = read(args.expected), read(args.actual)
    equal = different = unsure = 0
    for name in list(expected) + [name for name in actual if name not in expected]:
        want, doubtful = expected.get(name, ("no such case", False))
        got, _ = actual.get(name, ("no answer", False))
        same, forgiven = judge(want, got, doubtful, args.strict, args.as_native)
        if same:
            equal += 1
            continue
        unsure, different = unsure + forgiven, different + (not forgiven)
        print(f"{name}: expected {want}{' (unsure)' if forgiven else ''}, got {got}")
    print(f"{equal} equal, {different} different, {unsure} unsure")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
