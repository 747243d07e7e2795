#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scheduler = mps with a program in the place of NVIDIA's: it is started, found by workers, watched and ended; percentages get workers
of their own; what does not go with it is refused. tests/gpu/share has the real one."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

t.same_for_all_users()

HELPERS = t.ROOT / "tests" / "system" / "helpers"
FLAGS = ("--scheduler=mps", "--mps-shared=yes", "--tenant-users=0")
PRETENDED = """#!/bin/sh
folder=$CUDA_MPS_PIPE_DIRECTORY
if [ "$1" = -f ]; then
    echo $$ >"%s/pid"
    touch "$folder/control"
    while [ -d "$folder" ] && ! [ -e "$folder/over" ]; do sleep 0.05; done
    exit 0
fi
read said
echo "$said" >>"%s/said"
touch "$folder/over"
"""


class Server(t.Server):
    """One that finds such a program."""

    def __init__(self, *flags, text=None, **more):
        self.tools = tempfile.TemporaryDirectory(prefix="towline-mps-test-")
        path = pathlib.Path(self.tools.name) / "nvidia-cuda-mps-control"
        path.write_text(text or PRETENDED % (self.tools.name, self.tools.name))
        path.chmod(0o755)
        os.chmod(self.tools.name, 0o777)
        super().__init__(*flags, env={"PATH": f"{self.tools.name}:{os.environ['PATH']}"}, **more)

    def tool(self, name):
        path = pathlib.Path(self.tools.name) / name
        return path.read_text() if path.exists() else ""

    def daemon(self):
        return int(self.tool("pid"))


def held(server):
    """A program that has a session, until its input ends."""
    program = t.build_c(HELPERS / "suspended.c", ["-lcuda"], "suspended")
    process = subprocess.Popen([t.TOWLINE, "run", "-s", server.address(), "--", program, "hold", "1"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, env=t.clean_environment())
    t.equal(process.stdout.readline(), "ready\n", "what the program says")
    return process


def environment(pid):
    text = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


@t.test(60)
def it_is_started_found_and_ended():
    with Server(*FLAGS) as server:
        daemon = server.daemon()
        t.check(f"MPS daemon is process {daemon}" in server.log(), server.log())
        process = held(server)
        session, = server.status()["sessions"]
        variables = environment(session["worker_pid"])
        folder = pathlib.Path(variables["CUDA_MPS_PIPE_DIRECTORY"])
        t.check((folder / "control").exists() and folder.stat().st_mode & 0o777 == 0o700, f"{folder}")
        t.check("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in variables, "a percentage that nobody has set")
        done = t.run([t.TOWLINE, "suspend", "-s", server.address(), str(session["id"])], 30)
        t.check(done.returncode == 1 and "behind NVIDIA's MPS that cannot be done" in done.stderr, done)
        process.communicate()
    t.equal(server.tool("said"), "quit -t 1\n", "what the program was told")
    t.wait_until(lambda: t.gone(daemon), 10, "it has ended")
    t.check(not folder.exists(), f"{folder} is left")


@t.test(60)
def a_percentage_needs_a_worker_of_its_own():
    if os.geteuid() != 0:
        raise t.Skip("only root may read a worker's environment")
    with Server(*FLAGS, "--compute=30") as server:
        process = held(server)
        session, = server.status()["sessions"]
        t.equal(environment(session["worker_pid"]).get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "30", "the worker's percentage")
        process.communicate()


@t.test(60)
def the_server_ends_with_it():
    with Server(*FLAGS) as server:
        os.kill(server.daemon(), signal.SIGKILL)
        t.wait_until(lambda: server.process.poll() is not None, 20, "the server has ended")
        t.equal(server.process.returncode, 1, "its exit code")
        t.check("MPS daemon has ended, and no program can use the GPU" in server.log(), server.log())


@t.test(60)
def a_server_that_is_killed_takes_it_along():
    with Server(*FLAGS) as server:
        daemon = server.daemon()
        folder = environment(daemon)["CUDA_MPS_PIPE_DIRECTORY"]
        server.process.kill()
        server.process.wait()
        t.wait_until(lambda: t.gone(daemon), 10, "it has ended")
        shutil.rmtree(folder)  # nobody is left who could


@t.test(60)
def what_does_not_go_is_said():
    for flags, words in ((FLAGS[::2], "all programs share one user then"), (FLAGS[:2], "NVIDIA's MPS serves one user; write tenant-users = 0"),
                         ((*FLAGS, "--overcommit=swap"), "behind NVIDIA's MPS cannot be put out"),
                         (("--mps-shared=yes",), "mps-shared holds only with NVIDIA's MPS"), (("--compute=30",), "write scheduler = time")):
        with tempfile.TemporaryDirectory() as folder:
            done = t.run([t.TOWLINED, "--device=soft", f"--listen=unix://{folder}/sock", f"--cache-dir={folder}", *flags], 30)
        t.check(done.returncode != 0 and words in done.stdout + done.stderr, f"{flags}: {done}")


@t.test(60)
def a_program_that_is_missing_or_fails_is_named():
    for env, words in (({"PATH": "/nowhere"}, "needs nvidia-cuda-mps-control, which is not in PATH"),):
        with tempfile.TemporaryDirectory() as folder:
            done = t.run([t.TOWLINED, "--device=soft", f"--listen=unix://{folder}/sock", f"--cache-dir={folder}", *FLAGS], 30,
                         env=dict(os.environ, **env))
        t.check(done.returncode == 1 and words in done.stdout + done.stderr, done)


if __name__ == "__main__":
    t.main()
