#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions that are suspended by their driver's own checkpoint calls, as on NVIDIA's. The driver is of our own: the software GPU behind
the functions that a driver library exports, with checkpoints that fail where a test wants it (helpers/checkpoint_driver.c)."""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import test_conform  # noqa: E402
import towtest as t  # noqa: E402
from test_suspend import HELPERS, KINDS, TOO_LATE, WAITS, Program, order, refused, resume, suspend  # noqa: E402

t._tests.clear()  # theirs run from their own files

JUMP = {"x86_64": "    jmp *checkpoint_table+{at}(%rip)\n",
        "aarch64": "    adrp x16, checkpoint_table+{at}\n    ldr x16, [x16, #:lo12:checkpoint_table+{at}]\n    br x16\n"}
LIBRARIES = ["src/backend/soft/libtowsoft.a", "src/backend/libtowspans.a", "src/backend/libtowdriver.a", "src/ptx/libtowptx.a", "src/ptx/libtowptx_num.a",
             "src/backend/libtowunpack.a", "src/base/libtowbase.a"]


def driver():
    """Every function of the API jumps to where the software GPU's stands in the table, but those that the source has itself."""
    if os.uname().machine not in JUMP:
        raise t.Skip(f"no driver is made for {os.uname().machine}")
    if t.TREE == "asan":
        raise t.Skip("AddressSanitizer leaves no room where a worker of NVIDIA's driver has its addresses")
    source = HELPERS / "checkpoint_driver.c"
    folder = t.BUILD / "test-programs"
    folder.mkdir(parents=True, exist_ok=True)
    own = set(re.findall(r"^CUresult (cu\w+)\(", source.read_text(), re.M))
    numbers = {}
    for header in sorted((t.BUILD / "src" / "gen").glob("*.h")):
        numbers.update(re.findall(r"^    TOW_FN_(cu\w+) = (\d+),", header.read_text(), re.M))
    t.check(len(numbers) > 500 and own <= set(numbers), f"{len(numbers)} functions; {own - set(numbers)}")
    thunks = folder / "checkpoint_thunks.s"
    text = "    .text\n" + "".join(f"    .globl {name}\n    .type {name}, %function\n{name}:\n" + JUMP[os.uname().machine].format(at=8 * int(number))
                                 for name, number in sorted(numbers.items()) if name not in own)
    text += "    .section .note.GNU-stack,\"\",%progbits\n"
    exports = folder / "checkpoint_driver.map"
    with t.locked(folder / "checkpoint_driver.lock"):
        for path, wanted in ((thunks, text), (exports, "{ global: cu*; local: *; };\n")):
            if not path.exists() or path.read_text() != wanted:
                path.write_text(wanted)
        libraries = [t.BUILD / name for name in LIBRARIES]
        zstd = subprocess.run(["pkg-config", "--libs", "libzstd"], capture_output=True, text=True).stdout.split()
        return t.build(["gcc", "-std=gnu17", "-g", "-O1", "-pthread", "-shared", "-fPIC", *t.sanitize_flags(), f"-I{t.ROOT / 'src'}",
                        f"-I{t.BUILD / 'src'}", str(source), str(thunks), f"-Wl,--version-script={exports}", "-Wl,-Bsymbolic",
                        "-Wl,--start-group", *map(str, libraries), "-Wl,--end-group", *zstd, "-lm", "-ldl"],
                       folder / "checkpoint_driver.so", [source, thunks, exports, *libraries])


class Server(t.Server):
    """One on that driver, whose checkpoints fail as `faults` says. Where root runs the tests its workers have users of their own."""

    def __init__(self, *flags, faults="", **more):
        super().__init__(*flags, device=str(driver()), **more)
        self.folder.chmod(0o711)  # workers open the driver
        self.faults = self.folder / "faults"
        self.fail(faults)

    def fail(self, text):
        self.faults.write_text(text + "\n")


for _kind in KINDS:
    @t.test(100, trees=("plain", "asan", "tsan"), name=f"the_driver_puts_memory_out_and_in_{_kind}")
    def memory(kind=_kind):
        with Server() as server, Program(server, "hold", 96, kind=kind) as program:
            for count in (1, 2):
                suspend(server, program.session)
                shown = program.shown()
                t.equal((shown["state"], shown["memory"], shown["saved"], shown["suspends"]), ("suspended", 0, 96 << 20, count),
                        "the session while it is suspended")
                program.say()
                line = program.process.stderr.readline()
                t.check(line.startswith(f"towline: session {program.session} {WAITS}user "), line)
                resume(server, program.session)
                program.expect("right")
                t.check("is resumed" in program.process.stderr.readline(), "it says that it goes on")
                t.equal(program.shown()["memory"], 96 << 20, "its memory")
            if os.geteuid() == 0 and t.TREE == "plain":
                t.check(os.stat(f"/proc/{program.shown()['worker_pid']}/stat").st_uid == 0, "nobody looks into the worker")
                user = re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{program.shown()['worker_pid']}/status").read_text(), re.M)
                t.check(int(user.group(1)) >= 0x70000000, f"its worker has the user {user.group(1)}")
            program.finish()
            t.check("symlink" not in server.log() and "checkpoint_driver:" not in server.log(), server.log())


@t.test(60)
def what_it_keeps_counts_once():
    with Server() as server, Program(server, "hold", 256) as program:
        def host():
            return server.status()["limits"]["memory"]["used"]
        t.wait_until(lambda: host() > 0, 10, "the worker was looked at")
        suspend(server, program.session)
        t.wait_until(lambda: host() >= 256 << 20, 10, "what it keeps counts")
        t.check(host() < 500 << 20, f"{host()} bytes of host memory")
        own = program.shown()["limits"]["session-memory"]["used"]
        t.check(own < 200 << 20, f"{own} bytes of its own")


@t.test(60)
def what_would_not_fit_into_host_memory_is_refused():
    with Server("--memory=300M") as server, Program(server, "hold", 200) as program:
        refused(order(server, "suspend", program.session),
                f"session {program.session} is not suspended: its 200 MiB of GPU memory would lie in the server's host memory", "than memory leaves")
        program.say()
        program.expect("right")


NAMED = {"kernel": "work that has not ended; the last kernel that was given to it is spin",
         "hostfn": "a host function in a stream has not ended", "value": "its GPU has work that has not ended, or a call waits"}

for _what in NAMED:
    @t.test(100, trees=("plain", "asan", "tsan"), name=f"what_keeps_it_is_named_and_it_goes_on_{_what}")
    def keeps(what=_what):
        for kind in KINDS:
            with Server() as server, Program(server, what, kind=kind) as program:
                for limit in (0, 1):
                    refused(order(server, "suspend", program.session, "--limit", limit), f"session {program.session} is not suspended: ", NAMED[what])
                    t.equal(program.shown()["state"], "running", "its state")
                program.say()
                program.expect("ended")
                program.expect("ready")
                with subprocess.Popen([t.TOWLINE, "suspend", "-s", server.address(), str(program.session)]) as waiting:
                    t.wait_until(lambda: program.shown()["state"] == "suspending", 20, "the session is to be suspended")
                    program.say()
                    if what == "hostfn":
                        t.equal(waiting.wait(), 0, "exit code of towline suspend")
                        resume(server, program.session)
                        program.expect("ended")
                    else:
                        waiting.terminate()
                        waiting.wait()


@t.test(100)
def what_the_driver_does_not_take_is_refused_before():
    with Server(faults="checkpoint -999") as server:  # it is not asked
        with Program(server, "managed") as program:
            refused(order(server, "suspend", program.session), "it has managed memory, which NVIDIA's driver does not put out")
            program.say()
            program.expect("freed")
            server.fail("")
            suspend(server, program.session)
            resume(server, program.session)
            program.finish()
        server.fail("checkpoint -999")
        with Program(server, "shared") as program:
            refused(order(server, "suspend", program.session), "it shares GPU memory with other programs")
            program.finish()


GOES_ON = [("lock 304", "NVIDIA's driver cannot suspend it: CUDA_ERROR_OPERATING_SYSTEM"), ("lock 801", "as under MPS"),
           ("lock 600", "work that has not ended"), ("checkpoint 801", "something that NVIDIA's driver does not put out"),
           ("checkpoint 2", "cannot put its memory out: CUDA_ERROR_OUT_OF_MEMORY")]
ENDS = [("checkpoint -999", "", "NVIDIA's driver could not suspend it: CUDA_ERROR_UNKNOWN"),
        ("checkpoint 801\nunlock 999", "", "NVIDIA's driver does not let it go on: CUDA_ERROR_UNKNOWN"),
        ("", "restore 2", "its GPU memory cannot come back: others have taken it meanwhile"),
        ("", "restore 801", "cannot bring its GPU memory back: CUDA_ERROR_NOT_SUPPORTED"),
        ("", "unlock 999", "NVIDIA's driver does not let it go on: CUDA_ERROR_UNKNOWN")]


@t.test(100, trees=("plain", "asan"))
def after_a_failure_that_changes_nothing_it_goes_on():
    with Server() as server, Program(server, "hold", 16) as program:
        for faults, words in GOES_ON:
            server.fail(faults)
            refused(order(server, "suspend", program.session, "--limit", 1), f"session {program.session} is not suspended: ", words)
            t.equal(program.shown()["state"], "running", faults)
            program.say()
            program.expect("right")
        server.fail("")
        suspend(server, program.session)
        resume(server, program.session)
        program.say()
        program.expect("right")
        t.equal(program.finish(), "", "what the program has said on stderr")


@t.test(200, trees=("plain", "asan"))
def after_any_other_the_session_ends_with_its_reason():
    for kind in KINDS:
        for out, back, words in ENDS:
            with Server(faults=out) as server, Program(server, "hold", 16, kind=kind) as program:
                worker = program.shown()["worker_pid"]
                if back:
                    suspend(server, program.session)
                    server.fail(back)
                    program.say()  # it waits in a call
                done = order(server, "resume" if back else "suspend", program.session)
                t.check(done.returncode == 1 and (words in done.stderr or "it has ended" in done.stderr), done)
                if not back:
                    program.say()
                _, err = program.process.communicate(timeout=30 * t.SLOW)
                t.check(words in err and program.process.returncode != 0, f"{kind}, {out or back}: {program.process.returncode}, {err}")
                t.wait_until(lambda: not server.status()["sessions"] and t.gone(worker), 10, f"{kind}, {out or back}: the session has ended")


@t.test(200, trees=("plain", "asan"))
def its_end_leaves_nothing():
    """While the driver puts its memory out, and afterwards."""
    for kind in KINDS:
        with Server(faults="slow 2000") as server:
            for way in ("kill", "end", "worker"):
                for midst in (True, False):
                    with Program(server, "hold", 32, kind=kind) as program:
                        worker = program.shown()["worker_pid"]
                        with subprocess.Popen([t.TOWLINE, "suspend", "-s", server.address(), str(program.session)], stdout=subprocess.DEVNULL,
                                              stderr=subprocess.DEVNULL) as asked:
                            if midst:
                                t.wait_until(lambda: program.shown()["state"] == "suspending", 20, "it is being suspended")
                            else:
                                t.equal(asked.wait(), 0, "exit code of towline suspend")
                            program.say()
                            if way == "end":
                                t.equal(order(server, "end", program.session).returncode, 0, "exit code of towline end")
                                program.process.communicate(timeout=30 * t.SLOW)
                            elif way == "worker":
                                os.kill(worker, signal.SIGKILL)
                                program.process.communicate(timeout=30 * t.SLOW)
                            else:
                                program.process.kill()
                            t.wait_until(lambda: not server.status()["sessions"] and t.gone(worker), 10, f"{kind}, {way}: the session has ended")


@t.test(200, trees=("plain", "asan"))
def a_program_that_checks_everything_goes_on():
    """It is suspended at any moment, also in copies and host functions; and polls, while the driver would answer that with an error."""
    seed = t.commit_seed()
    draw = random.Random(seed)
    done = 0
    for kind in KINDS:
        with Server("--scheduler=time") as server, Program(server, 40, seed % 1000, kind=kind, source="checks", ready=False,
                                                   env={"TOWLINE_LANES": "1"} if kind == "tcp" else None) as program:
            out = []
            reader = threading.Thread(target=lambda: out.append(program.process.communicate()))
            reader.start()
            while reader.is_alive():
                reader.join(draw.random() * 0.05)
                ids = [session["id"] for session in server.status()["sessions"]]
                if ids:
                    one = order(server, "suspend", ids[0], "--limit", 20)
                    done += one.returncode == 0
                    t.check(one.returncode == 0 or any(words in one.stderr for words in (
                        "it has ended", "you have no session", "has just come", "about to end", "managed memory")), one.stderr)
                    if one.returncode == 0:
                        order(server, "resume", ids[0])
            reader.join()
            wanted = "".join(f"round {i}\n" for i in range(40)) + "done\n"
            t.check(program.process.returncode == 0 and out[0][0] == wanted, f"{kind}, seed {seed}: {out}\n{server.log()[-2000:]}")
    t.check(done >= 6, f"it was suspended {done} times")
    print(f"suspended {done} times")


for _kind in KINDS:
    @t.test(100, trees=("plain", "asan", "tsan"), name=f"nobody_is_in_the_driver_meanwhile_{_kind}")
    def nobody(kind=_kind):
        """Questions come late to it, when its memory may be out. It answers them with an error then."""
        with Server(faults="late 30") as server, Program(server, "ask", kind=kind) as program:
            for _ in range(4):
                suspend(server, program.session)
                resume(server, program.session)
            server.fail("")
            program.say()
            program.expect("right")
            t.equal(program.finish(), "", "what the program has said on stderr")


@t.test(300, matrix="suspend", whole=True)
def conformance_cases():
    """Their memory is put out and in in front of every few commands."""
    with Server(f"--soft-suspend={3 + t.commit_seed() % 7}") as server:
        done = t.towline_run(server.address(KINDS[t.commit_seed() % len(KINDS)]), [test_conform.build_driver(), *test_conform.QUICK, "--jobs", "2"], 280)
        t.check("passed," in done.stdout, f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        wanted = test_conform.expected(False)
        text = "".join(line for line in done.stdout.splitlines(True) if not line.startswith(TOO_LATE + ":"))
        test_conform.compare(text, wanted, False)
        t.check(server.status()["totals"]["suspends"] > 20, f"{server.status()['totals']['suspends']} times")


@t.test(60)
def swap_is_not_there_yet():
    """A worker that waits for room is inside NVIDIA's driver by then."""
    with tempfile.TemporaryDirectory() as folder:
        done = t.run([t.TOWLINED, f"--device={driver()}", f"--listen=unix://{folder}/sock", f"--cache-dir={folder}", "--walls=0", "--overcommit=swap"], 50)
    t.check(done.returncode == 1 and "overcommit = swap works on the software GPU only, so far" in done.stdout + done.stderr, done)


@t.test(200, whole=True)
def what_is_measured_on_a_gpu_is_tried():
    """tests/gpu/suspend: its programs, its rows."""
    folder = tempfile.mkdtemp(prefix="tow")
    os.chmod(folder, 0o711)
    done = t.run([t.ROOT / "tests/gpu/suspend", "--pretend", "--device", shutil.copy(driver(), folder), "--build", t.BUILD, "--times", "2"], 190)
    shutil.rmtree(folder)
    t.check(done.returncode == 0 and done.stdout.endswith("13 passed, 0 failed\n"), f"{done.stdout}{done.stderr}")


if __name__ == "__main__":
    t.main()
