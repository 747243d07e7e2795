# SPDX-License-Identifier: Apache-2.0
"""Podman for tests: with storage of its own, and nothing left behind."""

import os
import pathlib
import re
import shutil

import towtest as t

# In a mount namespace of its own: what podman writes to /run and /dev/shm, and the kernel's one hierarchy of cgroups, which crun
# looks for.
STAGE = """
mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /dev/shm && mkdir /run/cdi /run/lock && mount -t cgroup2 cgroup2 /sys/fs/cgroup && cp -r "$1/." /run/cdi && shift && exec "$@"
"""


class Podman:
    """With storage of its own, and an image that has one program and what it is linked to, but no CUDA."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        (self.folder / "cdi").mkdir()
        settings = self.folder / "containers.conf"
        settings.write_text('[engine]\nevents_logger = "none"\n')
        self.env = t.clean_environment(CONTAINERS_CONF=str(settings), HOME=str(self.folder), TMPDIR=str(self.folder))

    def command(self, *words):
        podman = ["podman", "--root", self.folder / "root", "--runroot", self.folder / "runroot", "--storage-driver", "vfs",
                  "--runtime", "crun", "--cgroup-manager", "cgroupfs"]
        return [str(word) for word in ("unshare", "-m", "sh", "-c", STAGE, "sh", self.folder / "cdi", *podman, *words)]

    def call(self, *words, timeout=60):
        return t.run(self.command(*words), timeout, env=self.env)

    def make_image(self, program, name="localhost/plain"):
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
        done = self.call("import", archive, name)
        t.equal(done.returncode, 0, f"podman import ({done.stderr})")

    @staticmethod
    def runs(image, *flags, program=("/program",)):
        """The words of `podman run` with these flags."""
        # Else podman asks for more than this process may have.
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]
        return ["run", "--rm", "--pull=never", "--network=host", "--cgroups=disabled", *limits, *flags, image, *program]

    def run(self, image, *flags, program=("/program",)):
        return self.call(*self.runs(image, *flags, program=program))


def need():
    for tool, package in (("podman", "podman"), ("crun", "crun"), ("unshare", "util-linux")):
        if not shutil.which(tool):
            raise t.Skip(f"{tool} is not installed (apt install {package})")
    if os.getuid() != 0:
        raise t.Skip("podman is tried as root")
    if t.run(["unshare", "-m", "mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"]).returncode != 0:
        raise t.Skip("nothing can be mounted here")
