#!/usr/bin/env python3
"""The programs of tests/api over tcp, where no memory is shared with the worker (meson runs them over a local socket)."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402


def run_over_tcp(name, lanes):
    with t.Server("--soft-devices=2") as server:
        done = t.towline_run(server.address("tcp"), [t.BUILD / "tests" / "api" / f"api_{name}"], 60 * t.SLOW,
                             env={"TOWLINE_LANES": lanes})
        if done.returncode == 77:
            raise t.Skip(done.stdout.strip())
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
                f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")


for _source in sorted((t.ROOT / "tests" / "api").glob("test_*.c")):
    _name = _source.stem.removeprefix("test_")
    t.test(90, trees=("plain", "asan"), name=f"{_name}_tcp")(lambda name=_name: run_over_tcp(name, "3"))


if __name__ == "__main__":
    t.main()
