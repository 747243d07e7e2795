#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers: the file that `towline cdi` writes, and what podman makes of it with an image that knows nothing of Towline."""

import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

LIBRARIES = "/usr/lib/towline"
KEYS = "/etc/towline/known_servers"


def cdi(*words, code=0, **variables):
    done = t.run([t.TOWLINE, "cdi", *words], env=t.clean_environment(**variables))
    t.equal(done.returncode, code, f"the exit code of towline cdi {words} ({done.stdout}{done.stderr})")
    return done


def device(done):
    """Its name, what its container's environment is, and which file is where in it."""
    whole = json.loads(done.stdout)
    t.equal((whole["kind"], len(whole["devices"])), ("towline/gpu", 1), "what the file is about")
    edits = whole["devices"][0]["containerEdits"]
    t.equal(sorted(edits), ["env", "mounts"], "what a container is given")
    for mount in edits["mounts"]:
        t.check("ro" in mount["options"], f"a container may write to {mount}")
    return (whole["devices"][0]["name"], dict(word.split("=", 1) for word in edits["env"]),
            {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]})


@t.test(trees=("plain", "asan"))
def a_container_is_given_what_the_server_needs():
    with tempfile.TemporaryDirectory() as folder:
        token = pathlib.Path(folder, "token")
        token.write_text("no token\n")
        done = cdi("-s", "gpuhost", TOWLINE_TOKEN_FILE=str(token))
        name, variables, files = device(done)
        t.equal((name, done.stderr), ("all", ""), "the device, and what is said")
        t.equal(variables, {"TOWLINE_SERVER": "tcp://gpuhost", "LD_LIBRARY_PATH": LIBRARIES, "TRITON_LIBCUDA_PATH": LIBRARIES,
                            "TOWLINE_TOKEN_FILE": "/etc/towline/token"}, "the variables")
        t.equal(files, {LIBRARIES: os.path.realpath(t.BUILD / "lib"), "/etc/towline/token": os.path.realpath(token)}, "the files")
        _, variables, _ = device(cdi("-s", "a,b", "--library-path", "/opt/lib:/opt/other"))
        t.equal((variables["TOWLINE_SERVER"], variables["LD_LIBRARY_PATH"]),
                ("tcp://a,tcp://b", f"{LIBRARIES}:/opt/lib:/opt/other"), "two servers, and the image's own folders")
        t.check("is the container itself" in cdi("-s", "localhost").stderr, "nobody said whose localhost it is")
        authority = pathlib.Path(folder, "ca.pem")
        authority.write_text("")
        _, variables, files = device(cdi("-s", "tls://gpuhost", TOWLINE_TLS_CA=str(authority)))
        t.equal((variables["TOWLINE_TLS_CA"], files["/etc/towline/ca.pem"], KEYS in files),
                ("/etc/towline/ca.pem", os.path.realpath(authority), False), "certificates in place of keys")
        target = pathlib.Path(folder, "new", "towline.json")
        said = cdi("-s", "gpuhost", "--name", "lab.1", "--output", target).stdout
        t.check("podman run --device towline/gpu=lab.1 IMAGE PROGRAM" in said, said)
        t.equal((json.loads(target.read_text())["devices"][0]["name"], target.stat().st_mode & 0o777), ("lab.1", 0o644), "the file")


@t.test(trees=("plain", "asan"))
def what_a_container_cannot_use_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder, "file")
        plain.write_text("")
        home = {"HOME": folder, "XDG_CONFIG_HOME": folder}
        for words, code, sentence in (
                (["-s", "ssh://gpuhost"], 1, "a container cannot use ssh://gpuhost; name a server by HOST, tls://HOST or the path of a socket"),
                (["-s", "self:"], 1, "a container cannot use self:"),
                (["-s", "@name"], 1, "a container cannot reach the socket @name; have towlined listen on a path that begins with /"),
                (["-s", f"{folder}/none"], 1, f"{folder}/none cannot be given to a container: No such file or directory"),
                (["-s", plain], 1, f"{plain} is no socket; name the one that towlined listens on"),
                (["-s", "tls://gpuhost:4838"], 1, "the key of tls://gpuhost:4838 is not known here; run towline trust tls://gpuhost:4838"),
                (["-s", "gpuhost", "--name", "a/b"], 2, "--name=a/b is no name of a CDI device"),
                (["-s", "gpuhost", "--name", ""], 2, "is no name of a CDI device"),
                (["-s", "gpuhost", "--output", "x.yaml"], 2, "the file's name must end with .json"),
                (["-s", "gpuhost", "--output", f"{plain}/x.json"], 1, f"{plain}/x.json cannot be written: ")):
            done = cdi(*words, code=code, **home)
            t.check(sentence in done.stderr and not done.stdout, f"{words}: {sentence!r} is not in: {done.stderr}{done.stdout}")


# ---- podman ----

# In a mount namespace of its own: what podman writes to /run, and the kernel's one hierarchy of cgroups, which crun looks for.
STAGE = """
mount -t tmpfs tmpfs /run && mkdir /run/cdi /run/lock && mount -t cgroup2 cgroup2 /sys/fs/cgroup && cp -r "$1/." /run/cdi && shift && exec "$@"
"""


class Podman:
    """With storage of its own, and an image that has one program and what it is linked to, but no CUDA."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "cdi").mkdir()
        settings = self.folder / "containers.conf"
        settings.write_text('[engine]\nevents_logger = "none"\n')
        self.env = t.clean_environment(CONTAINERS_CONF=str(settings), HOME=str(self.folder), TMPDIR=str(self.folder))

    def call(self, *words, timeout=60):
        podman = ["podman", "--root", self.folder / "root", "--runroot", self.folder / "runroot", "--storage-driver", "vfs",
                  "--runtime", "crun", "--cgroup-manager", "cgroupfs"]
        return t.run(["unshare", "-m", "sh", "-c", STAGE, "sh", self.folder / "cdi", *podman, *words], timeout, env=self.env)

    def make_image(self, program):
        root = self.folder / "image"
        root.mkdir()
        # Found in the container by the loader, in the folder of the CDI file.
        needed = t.run(["ldd", program], env=dict(os.environ, LD_LIBRARY_PATH=str(t.BUILD / "lib"))).stdout
        # What tls:// addresses want an image to have.
        maps = pathlib.Path("/proc/self/maps").read_text()
        secure = re.findall(r"(/\S*/lib(?:ssl|crypto)\.so\.3)$", maps, re.M)
        for path in {str(program), *re.findall(r"(/\S+) \(0x", needed), *secure}:
            if "libcuda" not in path:
                target = root / ("program" if path == str(program) else path.lstrip("/"))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        archive = shutil.make_archive(self.folder / "image", "tar", root)
        done = self.call("import", archive, "localhost/plain")
        t.equal(done.returncode, 0, f"podman import ({done.stderr})")

    def run(self, name, *words):
        flags = ["run", "--rm", "--pull=never", "--network=host", "--cgroups=disabled"]
        # Else podman asks for more than this process may have.
        flags += ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        return self.call(*flags, *words, *(["--device", f"towline/gpu={name}"] if name else []), "localhost/plain", "/program")


def need_podman():
    for tool, package in (("podman", "podman"), ("crun", "crun"), ("unshare", "util-linux")):
        if not shutil.which(tool):
            raise t.Skip(f"{tool} is not installed (apt install {package})")
    if os.getuid() != 0:
        raise t.Skip("podman is tried as root")
    if t.run(["unshare", "-m", "mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]).returncode != 0:
        raise t.Skip("nothing can be mounted here")


@t.test(180)
def an_unmodified_image_computes_on_the_servers_gpu():
    """By each way to a server; without the device its program finds no driver."""
    need_podman()
    t.need_tls()
    program = t.build_c(t.ROOT / "tests" / "system" / "helpers" / "session.c", ["-lcuda"], "session")
    with tempfile.TemporaryDirectory(prefix="towline-podman-") as folder, t.TlsServer() as server:
        podman = Podman(folder)
        podman.make_image(program)
        done = podman.run(None)
        t.check(done.returncode != 0 and "libcuda.so.1" in done.stderr, f"without the device: {done.returncode}, {done.stderr}")
        for kind in ("unix", "tcp", "tls"):
            cdi("-s", server.address(kind), "--name", kind, "--output", podman.folder / "cdi" / f"{kind}.json", **server.settings)
        for kind in ("unix", "tcp", "tls"):
            done = podman.run(kind)
            t.equal((done.returncode, done.stdout), (0, "OK\n"), f"over {kind} ({done.stderr})")


if __name__ == "__main__":
    t.main()
