#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/accept, tests/gpu/table and tests/run themselves: what they count as passed, failed and skipped. No GPU is needed."""

import argparse
import concurrent.futures
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

FOLDER = t.ROOT / "tests" / "gpu"
sys.dont_write_bytecode = True


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


accept = load(FOLDER / "accept")


class NoServer:
    folder = pathlib.Path("/nonexistent")

    def address(self, transport):
        return f"{transport}://nowhere"

    def env(self, _transport):
        return {}


def result(code=0, out="", err=""):
    return {"code": code, "out": out, "err": err, "seconds": 0.1}


def measure(native, remote, archive=None, judge=accept.equal):
    """What accept makes of an item with these results, over one transport."""
    accept.run = lambda command, *_: remote if "run" in command else native
    args = argparse.Namespace(pretend=False, no_cover=True)
    item = accept.Item("part/one item", ["program"], judge=judge)
    return accept.measure(item, args, NoServer(), ["unix"], archive or accept.Archive(None))


@t.test()
def exit_code_77_is_a_skip_on_both_sides_only():
    row, outcome, records = measure(result(77, "no such library\n"), result(77, "no such library\n"))
    t.equal((row, outcome), (("part/one item", "skip", "skip", "no such library"), "skipped"), "both skipped")
    t.equal((records[0]["equal"], records[0]["skipped"], records[0]["reason"]), (True, True, "no such library"), "its record")
    for native, remote in ((77, 0), (0, 77), (77, 1), (1, 1)):
        _, outcome, records = measure(result(native), result(remote))
        t.equal(outcome, "failed", f"exit code {native} natively, {remote} remotely")
        t.equal(records[0]["skipped"], False, "its record")
    t.equal(measure(result(), result())[1], "passed", "exit code 0")
    t.equal(accept.total(["passed", "skipped"]), ("1 skipped\n1 passed, 0 failed", 0), "a skip")
    t.equal(accept.total(["passed", "failed", "skipped"]), ("1 skipped\n1 passed, 1 failed", 1), "a failure")
    t.equal(accept.total(["passed"], 2), ("2 not reached\n1 passed, 2 failed", 1), "items without time")
    t.equal(accept.total(["passed"], 0, 1), ("1 passed, 1 failed", 1), "a crash that nobody noticed")


@t.test()
def what_needs_no_build_goes_first_and_who_wants_to_be_alone_last():
    built, broken = concurrent.futures.Future(), concurrent.futures.Future()
    built.set_result("program")
    broken.set_exception(RuntimeError("gcc says no"))
    plan = [accept.Item("alone", ["a"], alone=True), accept.Item("built", ["b"], program=built),
            accept.Item("broken", [], program=broken), accept.Item("script", ["s"])]
    order = []

    def one(item):
        order.append(item.name)
        return item.not_built() or item.command
    got = {item.name: result for item, result in accept.carried_out(plan, one, 1)}
    t.equal(order, ["script", "built", "broken", "alone"], "the order")
    t.equal([got[name] for name in order], [["s"], ["program", "b"], "gcc says no", ["a"]], "what became of them")


@t.test()
def the_last_line_of_a_run_has_two_numbers():
    run = load(t.ROOT / "tests" / "run")
    time, reason = "1 min 2 s, 0 min 0 s of processors", "not run: because: 1"
    for results, wanted, code in ((["ok", "skipped"], [reason, time, "1 skipped", "1 passed, 0 failed"], 0),
                                  (["ok", "FAILED", "skipped"], ["failed: a test", reason, time, "1 skipped", "1 passed, 1 failed"], 1),
                                  (["ok", "ok"], [time, "2 passed, 0 failed"], 0),
                                  (["skipped"], [reason, time, "1 skipped", "0 passed, 0 failed"], 0),
                                  ([], [time, "0 passed, 0 failed"], 1)):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            tally = run.Tally(False, len(results))
            for result in results:
                tally.add("a test", result, output="because\n")
            got = tally.finish(62, 0)
        t.equal(said.getvalue().splitlines()[-len(wanted):], wanted, f"the end of what is said of {results}")
        t.equal(got, code, f"the exit code of {results}")


@t.test()
def the_software_gpus_answers_are_no_excuse():
    soft = [line for line in (t.ROOT / "tests/conform/soft.txt").read_text().splitlines() if not line.startswith("#")]
    t.check(soft, "soft.txt has no cases")
    name = soft[0].partition(":")[0]
    native = result(0, f"{name}: right\nother: 1\n2 passed, 0 failed\n")
    mine = [line for line in soft if line.startswith(f"{name}: ")]
    remote = result(0, "\n".join(mine) + "\nother: 1\n2 passed, 0 failed\n")
    t.check(accept.equal_cases([native], remote) != "", "what soft.txt says passes on a real GPU")
    t.equal(accept.equal_cases([native], native), "", "what is said of equal lines")
    more = result(0, native["out"] + "third: 3\n")
    t.check("third" in accept.equal_cases([native], more), "a case that only the remote side has goes unnoticed")
    less = result(0, native["out"].replace("other: 1\n", ""))
    t.check("other" in accept.equal_cases([native], less), "a missing case goes unnoticed")


@t.test()
def a_table_of_mistakes_that_ends_early_is_no_success():
    expected = (t.PROGRAMS / "errors.expected").read_text()
    with tempfile.TemporaryDirectory() as folder:
        for text in ("", expected[:len(expected) // 2]):
            t.check("did not run natively" in accept.compare_errors(text, text, pathlib.Path(folder)), "a table cut off passes")
        t.equal(accept.compare_errors(expected, expected, pathlib.Path(folder)), "", "what is said of equal tables")
        t.check(accept.compare_errors(expected, expected[:len(expected) // 2], pathlib.Path(folder)), "half a table passes")


@t.test()
def a_driver_that_is_not_covered_ends_the_run():
    with tempfile.TemporaryDirectory() as folder:
        accept.run = lambda *_: result(1)
        accept.check_cover(pathlib.Path(folder))
        accept.run = lambda *_: result(0)
        try:
            accept.check_cover(pathlib.Path(folder))
        except SystemExit as end:
            t.check("not covered" in str(end), f"it says {end}")
        else:
            t.check(False, "the run goes on")


@t.test()
def one_archive_holds_what_a_run_leaves():
    with tempfile.TemporaryDirectory() as folder:
        for run in (1, 2):
            archive = accept.Archive(folder)
            measure(result(0, "a\n"), result(1, "b\n", f"broken {run}\n"), archive)
            archive.add("towlined.log", f"log {run}")
            archive.save()
        t.equal([p.name for p in pathlib.Path(folder).iterdir()], ["accept.tar.xz"], "the folder")
        with tarfile.open(pathlib.Path(folder, "accept.tar.xz")) as tar:
            texts = {m.name: tar.extractfile(m).read().decode() for m in tar}
        for run in (1, 2):
            t.equal(texts[f"{run}/failed/part-one-item.unix.err"], f"broken {run}\n", "stderr of the failed item")
            t.equal(texts[f"{run}/failed/part-one-item.native.out"], "a\n", "its native output")
            t.equal(texts[f"{run}/towlined.log"], f"log {run}", "the log")


def table(doc, *files):
    return subprocess.run([str(FOLDER / "table"), "--doc", str(doc), *map(str, files)], capture_output=True, text=True)


def record(item, transport, equal=True, skipped=False):
    return json.dumps({"item": item, "transport": transport, "equal": equal, "skipped": skipped}) + "\n"


@t.test()
def table_tells_what_ran_and_keeps_the_words():
    text = (t.ROOT / "docs/compatibility.md").read_text()
    with tempfile.TemporaryDirectory() as folder:
        doc, one, two = (pathlib.Path(folder, name) for name in ("doc.md", "one.json", "two.json"))
        doc.write_text(text)
        one.write_text(record("servers/a", "unix") + record("servers/b", "unix", equal=False) + record("errors", "shm")
                       + record("api/a", "tcp") + record("api/b", "tcp", equal=False) + record("api/c", "unix"))
        two.write_text(record("servers/b", "unix") + record("servers/a", "tcp", skipped=True) + record("errors", "unix"))
        t.equal(table(doc, one, two).returncode, 0, "the exit code")
        rows = {line.split("`")[1]: [c.strip() for c in line.split("|")[1:-1]] for line in doc.read_text().splitlines()
                if line.startswith("| `")}
        t.equal([rows["servers"][i] for i in (1, 3, 4, 5)], ["2", "not run", "equal", "1 skipped, 1 not run"], "servers")
        t.equal([rows["errors"][i] for i in (1, 3, 4, 5)], ["1", "equal", "equal", "not run"], "errors")
        t.equal([rows["api"][i] for i in (1, 4, 5)], ["3", "1 equal, 2 not run", "1 equal, 1 not run, **failed**: b"], "api")
        t.equal(rows["pytorch"][1:2] + rows["pytorch"][3:7], ["0", "not run", "not run", "not run", "not run"], "pytorch")
        old = {line.split("`")[1]: [c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()
               if line.startswith("| `")}
        t.equal(sorted(old), sorted(accept.PARTS), "the parts in the document")
        t.check(all(row[2] for row in old.values()), "a part without words")
        t.equal({part: (r[2], r[-1]) for part, r in rows.items()}, {part: (r[2], r[-1]) for part, r in old.items()}, "the words")
        # The rest of the document is untouched, and the same again changes nothing.
        cut = lambda s: s[:s.index("<!--")] + s[s.rindex("-->"):]  # noqa: E731
        t.equal(cut(doc.read_text()), cut(text), "what is around the table")
        once = doc.read_text()
        archive = accept.Archive(folder)
        archive.add("accept.json", one.read_text())
        archive.save()
        again = accept.Archive(folder)
        again.add("accept.json", two.read_text())
        again.save()
        table(doc, pathlib.Path(folder, "accept.tar.xz"))
        t.equal(doc.read_text(), once, "the table made of an archive")
        doc.write_text("no marks\n")
        t.equal(table(doc, one).returncode, 2, "the exit code without marks")
        t.equal(doc.read_text(), "no marks\n", "a document without marks")


@t.test()
def the_framework_programs_are_python():
    sources = sorted((FOLDER / "python").glob("*.py"))
    t.check(len(sources) > 30, "there are none")
    for source in sources:
        text = source.read_text()
        compile(text, str(source), "exec")
        item = accept.script_item("part", source)
        t.equal(len(item.env), sum(line.startswith("# env: ") for line in text.splitlines()), f"settings that {source.name} gets")


@t.test()
def the_document_names_what_the_client_masks():
    text = (t.ROOT / "docs/compatibility.md").read_text()
    array = re.search(r"masked\[\] = \{(.*?)\};", (t.ROOT / "src/client/link/device.c").read_text(), re.S).group(1)
    names = re.findall(r"CU_DEVICE_ATTRIBUTE_(\w+)", array)
    t.check(len(names) > 10, "the client's list was not found")
    t.equal([name for name in names if not re.search(rf"\b{name}\b", text)], [], "masked and not in docs/compatibility.md")


@t.test()
def a_test_that_meets_the_workers_own_program_is_run_again():
    """And no other one that fails; twice at most."""
    runner = load(t.ROOT / "tests" / "run")
    met = "echo \"the client's address 0xaaaa0000 is in use in the worker\"; "
    for script, wanted, runs in ((met + "test $(wc -c < count) -ge 2", "ok", 2), (met + "false", "FAILED", 3), ("false", "FAILED", 1)):
        with tempfile.TemporaryDirectory(prefix="tow") as folder:
            added = []
            tally = argparse.Namespace(add=lambda name, result, *_, **more: added.append(result))
            runner.run_test(runner.Test("one", ["sh", "-c", f"printf x >> count; {script}"], None, folder, 30), tally)
            t.equal((added, len(pathlib.Path(folder, "count").read_text())), ([wanted], runs), f"the result and the runs of {script}")


@t.test()
def few_that_fail_are_run_again_where_that_is_asked_for():
    """Who passes twice then is unsteady; who does not, or one of many, has failed."""
    runner = load(t.ROOT / "tests" / "run")
    once, never = "printf x >> count; test $(wc -c < count) -ge 2", "false"
    for again, scripts, wanted in ((0, [once], ["FAILED"]), (2, [once, never], ["unsteady", "FAILED"]), (1, [once, never], ["FAILED", "FAILED"])):
        with tempfile.TemporaryDirectory(prefix="tow") as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            runner.AGAIN = again
            tally = runner.Tally(False, len(scripts))
            tests = [runner.Test(f"test {at}", ["sh", "-c", script], None, folder, 30) for at, script in enumerate(scripts)]
            for test in tests:
                runner.run_test(test, tally)
            runner.run_again(tests, tally)
            code = tally.finish(0, 0)
        t.equal([one.result for one in tally.results], wanted, f"the results where {again} are run again")
        t.equal(code, int("FAILED" in wanted), "the exit code")
        t.equal("unsteady: test 0 (failed, then passed twice alone)" in said.getvalue(), "unsteady" in wanted, "what the sums say")


@t.test(120, whole=True)
def faults_are_tried_on_the_software_gpu():
    """tests/gpu/faults: its programs, its server with tls, what it counts."""
    t.need_tls()
    done = t.run([FOLDER / "faults", "--pretend", "--build", t.BUILD, "--kills", "3", "--at-once", "2", "--faults", "1", "--seed", "1"], 100)
    t.check(done.returncode == 0 and done.stdout.endswith("4 passed, 0 failed\n"), f"{done.stdout}{done.stderr}")
    t.check("killed 3 clients" in done.stdout and "killed 3 workers" in done.stdout, done.stdout)


@t.test(120, whole=True)
def walls_are_tried_without_a_gpu():
    """tests/gpu/walls: its library in front of a driver, its servers, what it counts."""
    t.need_tls()
    if os.geteuid() != 0:
        raise t.Skip("only a server that is root has users for its tenants")
    done = t.run([FOLDER / "walls", "--pretend", "--build", t.BUILD], 110)
    t.check(done.returncode == 0 and done.stdout.endswith(" passed, 0 failed\n"), f"{done.stdout}{done.stderr}")
    t.check(all(f"ok      {name} " in done.stdout for name in ("memory-of-worker", "open-key", "connect-tcp", "start-program")), done.stdout)


@t.test(120, whole=True)
def a_notebook_is_tried_on_the_software_gpu():
    """tests/gpu/notebook: the wheel, its server, what it compares."""
    t.need_tls()
    done = t.run([FOLDER / "notebook", "--pretend", "--build", t.BUILD], 110)
    t.check(done.returncode == 0 and done.stdout.endswith("3 passed, 0 failed\n"), f"{done.stdout}{done.stderr}")


@t.test(240, whole=True)
def shares_are_measured_on_the_software_gpu():
    """tests/gpu/share: its programs, its servers, its rows; what they say means nothing here."""
    with tempfile.NamedTemporaryFile(suffix=".json") as table:
        done = t.run([FOLDER / "share", "--pretend", "--build", t.BUILD, "--seconds", "0.5", "--rounds", "1", "--json", table.name], 220)
        rows = json.loads(pathlib.Path(table.name).read_text())
    t.check(done.returncode == 0 and re.search(r"\n\d+ reached, \d+ missed\n$", done.stdout), f"{done.stdout}{done.stderr}")
    t.equal(len(rows), 12, "rows")
    t.check(all(name in done.stdout for name in ("weights 1:2:5 ", "compute = 30", "small loop, priority high, p99", "8 small programs, MPS")), done.stdout)


@t.test(120, whole=True)
def timelines_are_measured_on_the_software_gpu():
    """tests/gpu/timeline: its programs, its turns, what it adds up; times mean nothing here."""
    with tempfile.NamedTemporaryFile(suffix=".json") as table:
        done = t.run([FOLDER / "timeline", "--pretend", "--build", t.BUILD, "--turns", "2", "--json", table.name], 110)
        t.check(done.returncode == 0 and re.search(r"\n\d+ reached, \d+ missed\n$", done.stdout), f"{done.stdout}{done.stderr}")
        rows = json.loads(pathlib.Path(table.name).read_text())
    t.equal(len(rows), 6, "rows")
    t.equal([(row["value"], row["against"]) for row in rows if row["what"] == "kernels"], [(4, 4)] * 2, "kernels of a step")
    t.check("arrows: 480 of 480 kernels" in done.stdout and "arrows: 96 of 96 kernels" in done.stdout, done.stdout)


if __name__ == "__main__":
    t.main()
