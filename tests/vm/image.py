# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel and root, made of Debian's packages without root's rights and kept in build/vm.

A flavour is a list of packages and an init; its root is unpacked by dpkg-deb and tar into a folder, and packed as a cpio
archive that the kernel unpacks into memory. What is made is kept until what it is made from changes.
"""

import contextlib
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import time

import towtest as t

HERE = pathlib.Path(__file__).resolve().parent
CACHE = t.BUILD / "vm"
APT_SECONDS = 300
REASON_SECONDS = 600  # for so long a failed download is not tried again

# machine of uname: Debian's name of it, QEMU, the package that has QEMU, what QEMU needs there.
ARCHES = {
    "aarch64": ("arm64", "qemu-system-aarch64", "qemu-system-arm",
                {"emulated": "virt", "kvm": "virt,gic-version=host", "processor": "cortex-a72", "console": "ttyAMA0"}),
    "x86_64": ("amd64", "qemu-system-x86_64", "qemu-system-x86",
               {"emulated": "q35", "kvm": "q35", "processor": "max", "console": "ttyS0"}),
}
DEBIAN, QEMU, QEMU_PACKAGE, MACHINE = ARCHES.get(os.uname().machine, (None, None, None, None))

# What the guest has; the packages that these depend on come along.
PACKAGES = {
    "plain": ["busybox-static", "dash", "iproute2", "libzstd1", "libssl3"],
    "systemd": ["busybox-static", "dash", "iproute2", "libzstd1", "libssl3", "systemd", "usr-is-merged"],
}
# One that can install packages, too.
PACKAGES["debian"] = [*PACKAGES["systemd"], "dpkg", "tar", "perl-base", "init-system-helpers", "libc-bin"]
# What others name but a guest does without, where its own list does not name it.
WITHOUT = re.compile(r"(perl|debconf|dpkg|tar|usrmerge|lib[a-z-]*-perl|libperl|adduser|passwd)([-0-9.]\S*)?$")
# No hands to read it, no other languages.
LEFT_OUT = ["./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/info", "./usr/share/lintian",
            "./usr/share/bash-completion", "./usr/share/zsh", "./usr/lib/*/gconv", "./lib/udev/hwdb.d",
            "./usr/lib/udev/hwdb.d", "./lib/systemd/system-generators/*", "./usr/lib/systemd/system-generators/*"]
# Modules, and all that they need. The first line is what it takes to be a guest.
MODULES = """
    virtio_pci virtio_mmio virtio_net virtio_console virtio_rng virtio_blk 9p 9pnet_virtio
    sch_netem sch_tbf sch_htb sch_prio sch_ingress cls_u32 act_mirred ifb
    vsock vsock_loopback vmw_vsock_virtio_transport vsock_diag
    rdma_rxe crc32_generic ib_uverbs rdma_ucm rdma_cm
    veth dummy bridge tun overlay fuse loop ext4 autofs4
""".split()


def must_have():
    """Whether there can be a guest here; skips with the reason, before anything is fetched."""
    if DEBIAN is None:
        raise t.Skip(f"no guest for a machine of kind {os.uname().machine}")
    if not shutil.which(QEMU):
        raise t.Skip(f"{QEMU} is missing (apt install {QEMU_PACKAGE})")
    for tool in ("apt-get", "apt-cache", "dpkg-deb", "tar"):
        if not shutil.which(tool):
            raise t.Skip(f"{tool} is missing: guests are made of Debian's packages")


# ---- packages ----

def apt(command, *words, private, **more):
    """apt with folders of our own. `private`: with lists of our own too, which an ordinary user may fetch."""
    folder = CACHE / "apt"
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()  # nothing is installed in the guest, so all that is needed is fetched
    options = {"Dir::State::status": folder / "status", "Dir::Cache::archives": folder / "archives", "Debug::NoLocking": "1",
               "APT::Sandbox::User": "root", "Acquire::Retries": "1", "Acquire::http::Timeout": "10",
               "Acquire::https::Timeout": "10", "Dir::Cache::pkgcache": "", "Dir::Cache::srcpkgcache": ""}
    if private:
        options["Dir::State::lists"] = folder / "lists"
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    try:
        return subprocess.run([command, "-q", *flags, *words], capture_output=True, text=True, timeout=APT_SECONDS,
                              env=dict(os.environ, LC_ALL="C", DEBIAN_FRONTEND="noninteractive"), **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"E: {command} {words[0]} took more than {APT_SECONDS} s")


def fetch(work):
    """Runs `work` with this machine's package lists; where that does not do, with new ones. Skips if neither does."""
    note = CACHE / "no-packages"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - note.stat().st_mtime < REASON_SECONDS:
            raise t.Skip(note.read_text())
    said = work(False)
    if said:
        updated = apt("apt-get", "update", private=True)
        said = work(True) if updated.returncode == 0 else last_line(updated)
    if said:
        note.write_text(f"the guest's packages cannot be fetched: {said}")
        raise t.Skip(note.read_text())


def last_line(done):
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("E:", "W:", "Err:"))]
    return (lines or (done.stdout + done.stderr).splitlines() or [f"exit code {done.returncode}"])[-1]


def debs(flavour):
    """The archives of a flavour's packages and of what they depend on."""
    found = []

    def work(private):
        words = ["install", "-y", "--no-install-recommends", *PACKAGES[flavour]]
        fetched = apt("apt-get", "--download-only", *words, private=private)
        if fetched.returncode != 0:
            return last_line(fetched)
        simulated = apt("apt-get", "--simulate", *words, private=private)
        found.clear()
        for name, version in re.findall(r"^Inst (\S+) \((\S+) ", simulated.stdout, re.M):
            if WITHOUT.match(name) and name not in PACKAGES[flavour]:
                continue
            files = list((CACHE / "apt" / "archives").glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
            if not files:
                return f"{name} {version} has not come"
            found.append(files[0])
        return ""

    fetch(work)
    return found


def kernel_deb():
    """The archive of the newest kernel of this Debian."""
    found = []

    def work(private):
        listed = apt("apt-cache", "depends", f"linux-image-{DEBIAN}", private=private)
        names = re.findall(r"Depends: (linux-image-\S+)", listed.stdout)
        if not names:
            return f"this apt knows no linux-image-{DEBIAN}"
        done = apt("apt-get", "download", names[0], private=private, cwd=CACHE / "apt" / "archives")
        found[:] = sorted((CACHE / "apt" / "archives").glob(f"{names[0]}_*.deb"), key=lambda path: path.stat().st_mtime)
        return "" if done.returncode == 0 and found else last_line(done)

    (CACHE / "apt" / "archives").mkdir(parents=True, exist_ok=True)
    fetch(work)
    return found[-1]


def unpack(deb, folder):
    """As dpkg-deb -x does, but links to folders stay: /lib is one."""
    folder.mkdir(parents=True, exist_ok=True)
    left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE) as source:
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(folder), *left_out],
                       stdin=source.stdout, check=True)
    t.equal(source.returncode, 0, f"the exit code of dpkg-deb for {deb}")


# ---- the kernel and its modules ----

def module_facts(data):
    """The (key, value) pairs of a module's .modinfo section."""
    return re.findall(rb"(?:\0|^)(depends|alias|softdep)=([^\0]*)", data)


def read_module(path):
    return lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()


def module_name(path):
    return path.name.split(".ko")[0].replace("-", "_")


def choose_modules(source, target):
    """Copies MODULES and what they need, and writes the lists that modprobe reads."""
    paths = {module_name(path): path for path in source.rglob("*.ko*")}
    builtin = {module_name(pathlib.Path(line)) for line in (source / "modules.builtin").read_text().split()}
    needs, aliases, wanted = {}, [], list(MODULES)
    while wanted:
        name = wanted.pop().replace("-", "_")
        if name in needs or name in builtin or name not in paths:
            continue
        data = read_module(paths[name])
        facts = module_facts(data)
        needs[name] = [word.replace("-", "_") for key, value in facts if key == b"depends"
                       for word in value.decode().split(",") if word]
        soft = [word for key, value in facts if key == b"softdep"
                for word in value.decode().split() if word not in ("pre:", "post:")]
        aliases += [f"alias {value.decode()} {name}" for key, value in facts if key == b"alias"]
        wanted += needs[name] + soft
        (target / f"{name}.ko").write_bytes(data)
    lines = []
    for name in sorted(needs):
        chain, rest = [], list(needs[name])
        while rest:
            one = rest.pop(0)
            if one in needs:
                chain = [other for other in chain if other != one] + [one]
                rest += needs[one]
        lines.append(f"{name}.ko:" + "".join(f" {one}.ko" for one in chain))
    (target / "modules.dep").write_text("\n".join(lines) + "\n")
    (target / "modules.alias").write_text("\n".join(aliases) + "\n")
    shutil.copy(source / "modules.builtin", target)


def make_kernel():
    """build/vm/kernel: linux, its version, its modules."""
    folder, key = CACHE / "kernel", key_of([MODULES, DEBIAN])
    if kept(folder, key):
        return folder
    print("unpacking a kernel", flush=True)
    partial = fresh(CACHE / "kernel.partial")
    unpacked = fresh(CACHE / "kernel.unpacked")
    unpack(kernel_deb(), unpacked)
    image = next((unpacked / "boot").glob("vmlinuz-*"))
    version = image.name.removeprefix("vmlinuz-")
    source = next(path for path in (unpacked / "lib" / "modules", unpacked / "usr" / "lib" / "modules") if path.exists()) / version
    (partial / "modules").mkdir()
    choose_modules(source, partial / "modules")
    shutil.copy(image, partial / "linux")
    (partial / "version").write_text(version)
    shutil.rmtree(unpacked)
    return keep(partial, folder, key)


# ---- the root ----

def make_root(flavour):
    """build/vm/root-FLAVOUR: what the packages have. Ours is added when it is packed."""
    folder, key = CACHE / f"root-{flavour}", key_of([PACKAGES[flavour], WITHOUT.pattern, LEFT_OUT])
    if kept(folder, key):
        return folder
    print(f"unpacking the packages of a {flavour} guest", flush=True)
    partial = fresh(CACHE / f"root-{flavour}.partial")
    for name in ("bin", "sbin", "lib", *(["lib64"] if DEBIAN == "amd64" else [])):
        (partial / "usr" / name).mkdir(parents=True)
        (partial / name).symlink_to(f"usr/{name}")
    for deb in debs(flavour):
        unpack(deb, partial)
    # Each of busybox's names that no package has.
    busybox = partial / "usr" / "bin" / "busybox"
    have = {path.name for place in ("bin", "sbin") for path in (partial / "usr" / place).iterdir()}
    names = subprocess.run([str(busybox), "--list-full"], capture_output=True, text=True, check=True).stdout.split()
    for path in map(pathlib.Path, names):
        if path.name not in have:
            (partial / "usr" / path.parent.name / path.name).symlink_to("/usr/bin/busybox")
    return keep(partial, folder, key)


class Cpio:
    """An archive of the kind that a kernel unpacks ("newc"). All is root's, whoever makes it, and devices need no rights."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.names = set()

    def add(self, name, mode, data=b"", device=(0, 0)):
        """An entry, after the folders that it is in."""
        above = name.rpartition("/")[0]
        if above and above not in self.names:
            self.add(above, stat.S_IFDIR | 0o755)
        self.names.add(name)
        fields = [len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name.encode()) + 1, 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        self.file.write(head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4))

    def add_folder(self, folder, prefix=""):
        for path in sorted(folder.iterdir()):
            name, found = f"{prefix}{path.name}", path.lstat()
            if stat.S_ISLNK(found.st_mode):
                self.add(name, found.st_mode, os.readlink(path).encode())
            elif stat.S_ISDIR(found.st_mode):
                self.add(name, stat.S_IFDIR | 0o755)
                self.add_folder(path, f"{name}/")
            elif stat.S_ISREG(found.st_mode):
                self.add(name, stat.S_IFREG | stat.S_IMODE(found.st_mode), path.read_bytes())

    def close(self):
        self.add("TRAILER!!!", 0)
        self.file.close()


def make_agent():
    """Static: it is the first process of a guest, whatever libraries that has."""
    source = HERE / "agent.c"
    return t.build(["gcc", "-std=gnu17", "-O1", "-Wall", "-Wextra", "-static", str(source)], CACHE / "agent", [source])


def make(flavour):
    """(kernel, archive, the kernel's version) for QEMU; makes what is not there."""
    must_have()
    CACHE.mkdir(parents=True, exist_ok=True)
    with t.locked(CACHE / "lock"):
        kernel, root = make_kernel(), make_root(flavour)
        ours = {"usr/sbin/guest-agent": make_agent(), "usr/sbin/guest-setup": HERE / "guest-setup"}
        if flavour == "plain":
            ours["init"] = HERE / "init"
        else:
            ours["etc/systemd/system/guest-agent.service"] = HERE / "guest-agent.service"
        archive, note = CACHE / f"{flavour}.cpio", CACHE / f"{flavour}.cpio.key"
        key = key_of([(root / ".key").read_text(), (kernel / ".key").read_text(), (HERE / "image.py").read_text(),
                      *(hashlib.sha256(path.read_bytes()).hexdigest() for path in ours.values())])
        if not archive.exists() or not note.exists() or note.read_text() != key:
            note.unlink(missing_ok=True)
            pack(archive, flavour, kernel, root, ours)
            note.write_text(key)
    return kernel / "linux", archive, (kernel / "version").read_text()


def pack(archive, flavour, kernel, root, ours):
    """The packages' files, and over them ours: name in the guest to a path here."""
    cpio = Cpio(archive)
    cpio.add_folder(root)
    for name in ("build", "tree", "proc", "sys", "run", "tmp", "root", "mnt", "var/tmp"):
        cpio.add(name, stat.S_IFDIR | (0o1777 if name.endswith("tmp") else 0o755))
    cpio.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    cpio.add_folder(kernel / "modules", f"usr/lib/modules/{(kernel / 'version').read_text()}/")
    for name, data in configuration(flavour).items():
        cpio.add(name, stat.S_IFREG | 0o644, data.encode())
    for name, path in ours.items():
        cpio.add(name, stat.S_IFREG | (0o644 if name.endswith(".service") else 0o755), path.read_bytes())
    if flavour != "plain":
        cpio.add("init", stat.S_IFLNK | 0o777, b"/lib/systemd/systemd")
        for link, target in units().items():
            cpio.add(link, stat.S_IFLNK | 0o777, target.encode())
    cpio.close()


def configuration(flavour):
    """Small files that no package has."""
    files = {"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
             "etc/group": "root:x:0:\nutmp:x:43:\nsystemd-journal:x:999:\nnogroup:x:65534:\n",
             "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
             "etc/hosts": "127.0.0.1 localhost\n10.0.2.2 host\n", "etc/hostname": "guest\n"}
    if flavour != "plain":
        files |= {"etc/machine-id": f"{1:032x}\n", "etc/os-release": "ID=towline-guest\nPRETTY_NAME=\"a guest of Towline's tests\"\n",
                  "etc/fstab": ""}
    if flavour == "debian":
        files |= {"var/lib/dpkg/status": ""}  # nothing is installed, as far as dpkg knows
    return files


def units():
    """Links that choose what systemd starts, and what it leaves alone: name to target."""
    masked = """getty.target kmod-static-nodes.service ldconfig.service modprobe@.service proc-sys-fs-binfmt_misc.automount
        dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount
        sys-kernel-tracing.mount systemd-binfmt.service systemd-firstboot.service systemd-hwdb-update.service
        systemd-journal-catalog-update.service systemd-journal-flush.service systemd-logind.service
        systemd-machine-id-commit.service systemd-modules-load.service systemd-networkd.service systemd-random-seed.service
        systemd-remount-fs.service systemd-resolved.service systemd-sysctl.service systemd-sysusers.service
        systemd-timesyncd.service systemd-tmpfiles-clean.timer systemd-tmpfiles-setup-dev.service systemd-update-done.service
        systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-user-sessions.service""".split()
    links = {f"etc/systemd/system/{name}": "/dev/null" for name in masked}
    links["etc/systemd/system/multi-user.target.wants/guest-agent.service"] = "/etc/systemd/system/guest-agent.service"
    links["etc/systemd/system/default.target"] = "/lib/systemd/system/multi-user.target"
    return links


# ---- what is kept ----

def key_of(facts):
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def kept(folder, key):
    note = folder / ".key"
    return note.exists() and note.read_text() == key


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def keep(partial, folder, key):
    shutil.rmtree(folder, ignore_errors=True)
    (partial / ".key").write_text(key)
    partial.rename(folder)
    return folder
