#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quotas of GPU memory: what a session may have is what its program sees, and no way to allocate gets more."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402
from towtest import configured  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
KINDS = ("unix", "tcp", "shm")
QUOTA = 160  # MiB: a sixteenth is whole elements of all kinds
THREADS = 128  # a 64th is what cuMemCreate gives


def program():
    return t.build_c(HELPERS / "quota.c", ["-lcuda", "-ldl"], "quota")


def ask(server, *words, kind="unix", env=None, code=0):
    done = t.towline_run(server.address(kind), [program(), *map(str, words)], 100, env=env)
    t.check(done.returncode == code, f"{kind} {words}: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")
    return done


@contextlib.contextmanager
def held(server, *words, kind="unix", env=None):
    """A program that goes on until it is told to end; its first line."""
    command = [t.TOWLINE, "run", "-s", server.address(kind), "--", program(), *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=t.clean_environment(**(env or {}))) as process:
        try:
            line = process.stdout.readline()
            t.check(line, f"the program has ended:\n{server.log()[-2000:]}")
            yield line
        finally:
            process.stdin.close()
            process.wait()


def nothing_is_charged(server, quota=QUOTA):
    t.wait_until(lambda: not server.status()["sessions"], 30, "the session has ended")
    t.equal(server.status()["limits"]["gpu-memory"], {"used": 0, "limit": quota << 20}, "what is charged at the end")


for _kind in KINDS:
    @t.test(150, trees=("plain", "asan"), name=f"no_way_to_allocate_gets_more_{_kind}")
    def no_way(kind=_kind):
        with t.Server(f"--gpu-memory={QUOTA}M") as server:
            ask(server, "kinds", QUOTA, kind=kind)
            nothing_is_charged(server)

    @t.test(150, trees=("plain", "tsan"), name=f"threads_at_the_limit_{_kind}")
    def threads(kind=_kind):
        with t.Server(f"--gpu-memory={THREADS}M") as server:
            ask(server, "threads", THREADS, kind=kind)
            nothing_is_charged(server, THREADS)


@t.test(60)
def what_pools_keep_is_given_back_before_anybody_is_refused():
    with t.Server(f"--gpu-memory={QUOTA}M") as server:
        ask(server, "trim", QUOTA)
        nothing_is_charged(server)


@t.test(100, trees=("plain", "asan", "tsan"))
def pools_come_and_go_at_the_limit():
    with t.Server(f"--gpu-memory={QUOTA}M") as server:
        ask(server, "pools", QUOTA)
        nothing_is_charged(server)


@t.test(60, trees=("plain", "asan"))
def what_graphs_allocate_counts_for_as_long_as_it_lives():
    with t.Server(f"--gpu-memory={QUOTA}M") as server:
        ask(server, "graphs", QUOTA)
        nothing_is_charged(server)


@t.test(60)
def shared_memory_counts_for_its_maker():
    with t.Server(f"--gpu-memory={QUOTA}M") as server:
        ask(server, "share", QUOTA)
        nothing_is_charged(server)


@t.test(60)
def the_user_reads_why_once():
    with t.Server("--gpu-memory=100M") as server:
        for kind in KINDS:
            done = ask(server, "over", 101, kind=kind)
            t.equal(done.stdout, "2 2\n", f"{kind}: CUDA_ERROR_OUT_OF_MEMORY, twice")
            said = "101.0 MiB of GPU memory were refused: this program may have 100.0 MiB of each GPU (gpu-memory), and 100.0 MiB are left"
            t.equal(done.stderr.count(said), 1, f"{kind}: {done.stderr}")
        t.equal(server.log().count(said), 3, "lines of the log")
    with t.Server() as server:
        done = ask(server, "over", 101)
        t.equal((done.stdout, done.stderr), ("0 0\n", ""), "without a quota")


def shown(server, *words, **env):
    """What a program of 1 GiB sees in MiB: total, free; of NVML total, used, free."""
    total, free, rest, *nvml = map(int, ask(server, *(words or ("total",)), env=env).stdout.split())
    t.equal(rest, 0, "bytes beyond whole MiB")
    return total, free, nvml


@t.test(60)
def programs_ask_for_less_and_never_get_more():
    with t.Server("--gpu-memory=100M") as server:
        t.equal(shown(server), (100, 100, [100, 0, 100]), "what the settings say")
        for env, wanted in (({"TOWLINE_GPU_MEMORY": "40M"}, 40), ({"TOWLINE_GPU_MEMORY": "1G"}, 100), ({"CUDA_DEVICE_MEMORY_LIMIT": "30m"}, 30),
                            ({"TOWLINE_GPU_MEMORY": "50m", "CUDA_DEVICE_MEMORY_LIMIT": "30m"}, 50), ({"CUDA_DEVICE_MEMORY_LIMIT": "1g"}, 100)):
            t.equal(shown(server, **env), (wanted, wanted, [wanted, 0, wanted]), str(env))
        done = ask(server, "over", 41, env={"TOWLINE_GPU_MEMORY": "40M"})
        t.check("40.0 MiB of each GPU (TOWLINE_GPU_MEMORY, which it was started with)" in done.stderr, done.stderr)
    with t.Server(memory="1G") as server:
        t.equal(shown(server), (1024, 1024, [1024, 0, 1024]), "without a quota")
        t.equal(shown(server, TOWLINE_GPU_MEMORY="8G"), (1024, 1024, [1024, 0, 1024]), "more than the GPU has")
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--gpu-memory", "256M", "--", program(), "total"], env=t.clean_environment())
        t.equal(done.stdout, "256 256 0 256 0 256\n", f"--gpu-memory: {done.stderr}")
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--gpu-memory", "some", "--", program(), "total"], env=t.clean_environment())
        t.check(done.returncode == 2 and "--gpu-memory=some is no size" in done.stderr, done.stderr)
        done = t.run([t.TOWLINE, "run", "-s", server.address(), "--", program(), "total"], env=t.clean_environment(TOWLINE_GPU_MEMORY="8Q"))
        t.check(done.returncode == 2 and "TOWLINE_GPU_MEMORY=8Q is not understood" in done.stderr, done.stderr)
    done = t.run([t.TOWLINE, "run", "--device", "soft", "--gpu-memory", "64M", "-q", "--", program(), "over", "65"], env=t.clean_environment())
    t.equal(done.stdout, "2 2\n", f"a private server: {done.stderr}")
    done = t.run([t.TOWLINE, "run", "-s", "self:", "--gpu-memory", "64M", "--", program(), "over", "65"], env=t.clean_environment())
    t.check(done.stdout == "0 0\n" and "TOWLINE_GPU_MEMORY has no effect there" in done.stderr, f"one that knows no limits: {done}")


@t.test(60)
def each_of_several_gpus_has_the_quota():
    with t.Server("--gpu-memory=100M", "--soft-devices=3") as server, held(server, "hold", 60) as line:
        t.equal(line, "100 40 0 100 60 40\n", "what a program that holds 60 MiB sees")
        session = server.status()["sessions"][0]
        t.equal(session["charged"], [60 << 20], "what is charged of each GPU")
        t.equal(session["limits"]["gpu-memory"], {"used": 60 << 20, "limit": 100 << 20}, "what the report says")


# ---- classes ----

def reload(server, text):
    before = len(server.log())
    server.config.write_text(text)
    server.process.send_signal(signal.SIGHUP)
    t.wait_until(lambda: re.search("settings (were read again|stay as they were)", server.log()[before:]), 20, "the settings are read")
    return server.log()[before:]


def mine():
    return f"users = {os.getuid()}\n"


@t.test(90, waits=True)
def classes_are_read_again_and_end_nobody():
    with configured(f"[class small]\n{mine()}gpu-memory = 100M\nsessions-per-peer = 1\n") as server:
        with held(server, "hold", 60) as line:
            t.equal(line, "100 40 0 100 60 40\n", "what it sees")
            t.equal([session["class"] for session in server.status()["sessions"]], ["small"], "classes of sessions")
            done = ask(server, "total", code=1, env={"TOWLINE_WAIT": "0"})
            t.check("sessions-per-peer" in done.stderr, done.stderr)
            said = reload(server, f"[class small]\n{mine()}gpu-memory = 50M\nsession-memory = 1M\nsession-idle = 5\n")
            t.check("read again" in said, said)
            t.equal(shown(server)[0], 50, "what new programs see")
            t.equal([session["limits"]["gpu-memory"]["limit"] for session in server.status()["sessions"] if session["charged"]], [100 << 20],
                    "what the old one has")
            said = reload(server, "[class small]\ngpu-memroy = 50M\n")
            t.check(f"{server.config}:2: there is no setting \"gpu-memroy\" of a class; a class has users, groups" in said, said)
            t.equal(shown(server)[0], 50, "what new programs see with settings that were not understood")
            reload(server, "")
            t.equal(shown(server)[0], 2048, "what they see without a class")
            t.wait_until(lambda: [s["class"] for s in server.status()["sessions"]] == ["small"], 20, "only the old one goes on")
        t.wait_until(lambda: re.search("audit.*class small.*its program left", server.log()), 20, "the audit line has the class")


@t.test(60)
def the_audit_line_says_what_a_session_had():
    with t.Server(f"--gpu-memory={QUOTA}M", "--log-format=json") as server:
        ask(server, "kinds", QUOTA)
        ask(server, "over", 7 << 10)
        t.wait_until(lambda: server.log().count('"area":"audit"') == 2, 20, "audit lines")
        lines = [json.loads(line) for line in server.log().splitlines() if '"area":"audit"' in line]
        full, none = sorted(lines, key=lambda line: line["session"])  # they come as the workers have ended
        t.equal([full[key] for key in ("program", "gpu_memory")], ["quota", QUOTA << 20], "of a program that had all")
        t.equal(none["gpu_memory"], 0, "of one that was refused")
        t.check(full["bytes_in"] > 10000 and full["bytes_out"] > 1000 and full["calls"] > 1000, f"{full}")


@t.test(60, waits=True)
def a_class_has_so_many_sessions():
    with configured(f"[class default]\nmax-sessions = 1\n") as server, held(server, "hold", 1):
        done = ask(server, "total", code=1, env={"TOWLINE_WAIT": "0"})
        t.check("no more room for class default: it serves 1 of its programs already" in done.stderr, done.stderr)


@t.test(60)
def a_closed_class_is_not_tried_again():
    with configured("[class default]\nmax-sessions = 0\n") as server:
        done = ask(server, "total", code=1)
        t.check("class default is closed: its max-sessions is 0" in done.stderr, done.stderr)
        t.check("trying again" not in done.stderr and "waited" not in done.stderr, done.stderr)


@t.test(60)
def a_server_with_bad_classes_does_not_start():
    for text, sentence in (("[class]\n", ":1: a class cannot be called"), ("[room a]\n", ":1: there is no section [room a]; write [class NAME]"),
                           ("\n[class a]\nlanes = 3\n", ':3: "lanes" is no setting of a class; write it above the first section'),
                           ("[class a]\nusers = nobody-here\n", ':1: class a: users: this machine has no user "nobody-here"'),
                           ("[class a]\nnetworks = all\n", ':1: class a: networks: "all" is no network')):
        with tempfile.TemporaryDirectory(prefix="tow") as folder:
            config = pathlib.Path(folder) / "towlined.conf"
            config.write_text(text)
            done = subprocess.run([t.TOWLINED, f"--config={config}", "--device=soft", f"--listen=unix://{folder}/s"], capture_output=True, text=True,
                                  timeout=60)
            t.check(done.returncode != 0 and f"{config}{sentence}" in done.stderr, f"{text!r}: {done.stderr}")


@t.test(120, waits=True)
def the_class_room_of_the_guide_works():
    page = (t.ROOT / "docs" / "guide" / "sharing.md").read_text()
    lines = page.split("    # /etc/towline/towlined.conf\n")[1].splitlines()
    text = ""
    for line in lines:
        if line and not line.startswith("    "):
            break
        text += "" if line.startswith("    listen = ") else line[4:] + "\n"
    t.check("[class teachers]" in text and "require-token = 1" in text, text)
    command = re.search(r"^    towlined (token create .*)$", page, re.M).group(1).split()
    with tempfile.TemporaryDirectory(prefix="tow") as folder, configured(text, f"--token-file={folder}/tokens", "--idle-workers=1") as server:
        made = t.run([t.TOWLINED, *command, "--token-file", f"{folder}/tokens"])
        t.equal(made.returncode, 0, f"the guide's command: {made.stderr}")
        anna = {"TOWLINE_TOKEN": made.stdout.strip()}
        other = t.run([t.TOWLINED, "token", "create", "--user", "bob", "--class", "gold", "--token-file", f"{folder}/tokens"])
        seen = ask(server, "total", kind="tcp", env=anna).stdout.split()
        t.equal(seen, ["1024", "1024", "0", "1024", "0", "1024"], "what a student sees")
        done = ask(server, "over", 1025, kind="tcp", env=anna)
        t.check("1024.0 MiB of each GPU (gpu-memory of class students)" in done.stderr, done.stderr)
        t.equal(ask(server, "total", kind="tcp", env={"TOWLINE_TOKEN": other.stdout.strip()}).stdout.split()[0], "512", "one of no class")
        t.check("its token's class gold is not in the settings: class default holds" in server.log(), server.log())
        wanted = "2048" if os.getuid() == 0 else "512"
        t.equal(ask(server, "total").stdout.split()[0], wanted, "whoever logs in on the machine")
        with contextlib.ExitStack() as both:
            for _ in range(2):
                both.enter_context(held(server, "hold", 1, kind="tcp", env=anna))
            done = ask(server, "total", kind="tcp", env={**anna, "TOWLINE_WAIT": "0"}, code=1)
            t.check("serves 2 programs from there already" in done.stderr, done.stderr)


if __name__ == "__main__":
    t.main()
