# SPDX-License-Identifier: Apache-2.0
"""Two machines for tests, gpuhost and laptop: each with a network, a /etc and a /var of its own, and a wire between them."""

import contextlib
import os
import pathlib
import re
import subprocess

import towtest as t

ADDRESSES = {"gpuhost": "10.93.0.1", "laptop": "10.93.0.2"}
# Before a block of commands in a guide.
MARK = re.compile(r"^<!-- (run|install) on (\w+) -->\n((?:    .*\n|\n(?=    ))+)", re.M)
# What some of them must say.
SIGNS = {"towline devices": "Towline Software GPU", "train.py": "trained", "towline bench": "launch", "towline doctor": "would run"}
# In place of systemd: starts the server anew, as the unit does, and returns when it serves.
SYSTEMCTL = """#!/bin/sh
[ "$*" = "restart towlined" ] || { echo "systemctl $*: not for this test" >&2; exit 1; }
[ ! -f /run/towlined.pid ] || { kill "$(cat /run/towlined.pid)"; while kill -0 "$(cat /run/towlined.pid)" 2>/dev/null; do sleep 0.1; done; }
towlined --device=soft --soft-memory=1G --grace=0 >/run/towlined.log 2>&1 </dev/null &
echo $! >/run/towlined.pid
until grep -q ' serves ' /run/towlined.log; do kill -0 $! || { cat /run/towlined.log >&2; exit 1; }; sleep 0.1; done
"""
HERE = """
mount -t tmpfs tmpfs /run
for folder in etc var; do
    mkdir -p /run/over/$folder/new /run/over/$folder/work
    mount -t overlay -o lowerdir=/$folder,upperdir=/run/over/$folder/new,workdir=/run/over/$folder/work overlay /$folder
done
mkdir -p /etc/towline
"""
THERE = """
mount -t proc proc "$0/proc"
mount -t tmpfs tmpfs "$0/run"
mount -t tmpfs tmpfs "$0/dev/shm"
"""
READY = """
printf '127.0.0.1 localhost\n10.93.0.1 gpuhost\n10.93.0.2 laptop\n' >"${0%/}/etc/hosts"
echo ready
exec sleep 900
"""


def need():
    if os.getuid() != 0:
        raise t.Skip("the administrator of these machines is root")
    if t.run(["unshare", "-mnp", "--fork", "sh", "-c", "mount -t tmpfs tmpfs /run && ip link add near type veth peer name away"]).returncode != 0:
        raise t.Skip("machines with a network of their own cannot be made here (ip, unshare, mount)")


class Machine:
    """With this build's programs; or, with `root`, a folder with a system of its own, with what is installed there. `seen[0]` is
    all that was said, from which people copy."""

    def __init__(self, name, folder, seen, root=None):
        self.name, self.seen, self.root, self.process = name, seen, root, None
        self.home = root / "root" if root else pathlib.Path(folder) / name / "home"
        commands = root / "usr" / "local" / "bin" if root else pathlib.Path(folder) / name / "bin"
        for made in (self.home, commands):
            made.mkdir(parents=True, exist_ok=True)
        control = commands / "systemctl"
        control.write_text(SYSTEMCTL)
        control.chmod(0o755)
        self.env = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root" if root else str(self.home), "LC_ALL": "C",
                    "DEBIAN_FRONTEND": "noninteractive"}
        if not root:
            self.env["PATH"] = f"{commands}:{t.BUILD}/bin:" + self.env["PATH"]

    def start(self):
        script = (THERE if self.root else HERE) + READY
        self.process = subprocess.Popen(["unshare", "-mn", "--kill-child", "--fork", "sh", "-ec", script, str(self.root or "/")],
                                        stdout=subprocess.PIPE, text=True)
        t.equal(self.process.stdout.readline(), "ready\n", f"{self.name} is there")
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        self.pid = children.split()[0]

    def stop(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                print(self.call("[ ! -f /run/towlined.pid ] || { cat /run/towlined.log; kill $(cat /run/towlined.pid); }").stdout)
            self.process.kill()  # and its child with it
            self.process.communicate()

    def call(self, script, timeout=120):
        enter = ["nsenter", "-t", self.pid, "-m", "-n"]
        if self.root:
            inside = ["chroot", self.root, "sh", "-ec", f"cd; {script}"]
        else:
            inside = ["sh", "-ec", f"cd; {script}"]
        return t.run([*enter, *inside], timeout, env=self.env)

    def wire(self, script):
        """With this system's programs, in the machine's network."""
        done = t.run(["nsenter", "-t", self.pid, "-n", "sh", "-ec", script])
        t.equal(done.returncode, 0, f"{self.name}'s network: {script} ({done.stderr})")

    def run(self, script):
        """A block of a guide, as somebody would copy it: what is shortened there with dots is what was seen before."""
        for short, pattern in (("towl-...", r"towl-[0-9a-f-]+"), ("sha256:...", r"sha256:[0-9a-f]{64}")):
            found = re.findall(pattern, self.seen[0])
            script = script.replace(short, found[-1]) if found else script
        done = self.call(script)
        print(f"{self.name}$ {script}\n{done.stdout}{done.stderr}")
        t.equal(done.returncode, 0, f"on {self.name}, the exit code of: {script}\n{done.stdout}{done.stderr}")
        self.seen[0] += done.stdout + done.stderr
        return done.stdout


def blocks(page):
    """The blocks of a guide that are marked: for each (run or install, the machine's name, script)."""
    text = page.read_text()
    found = [(kind, machine, re.sub("^    ", "", script, flags=re.M)) for kind, machine, script in MARK.findall(text)]
    t.equal(len(found), text.count("<!--"), f"{page.name}: marks with a block of commands")
    return found


def follow(page, both, kinds):
    """Runs the blocks of a guide."""
    results = wanted = 0
    for kind, machine, script in blocks(page):
        t.check(machine in both, f"there is no machine {machine}")
        if kind in kinds:
            said = both[machine].run(script)
            results += len(re.findall(r"^OK$", said, re.M))
            wanted += len(re.findall(r"-- \./app$", re.sub("towline doctor.*", "", script), re.M))
            for command, sign in SIGNS.items():
                t.check(command not in script or sign in said, f"{command} does not say {sign!r}: {said}")
    t.check(results == wanted > 0, f"results of ./app: {results} of {wanted}")


@contextlib.contextmanager
def two(folder, roots=None):
    """Both, by name. `roots`: by name, systems of their own."""
    seen = [""]
    machines = {name: Machine(name, folder, seen, roots and roots[name]) for name in ADDRESSES}
    try:
        for machine in machines.values():
            machine.start()
        host, laptop = machines["gpuhost"], machines["laptop"]
        host.wire(f"ip link add eth0 type veth peer name eth0 netns {laptop.pid}")
        for name, machine in machines.items():
            machine.wire(f"ip link set lo up; ip addr add {ADDRESSES[name]}/24 dev eth0; ip link set eth0 up")
        yield machines
    finally:
        for machine in machines.values():
            machine.stop()
