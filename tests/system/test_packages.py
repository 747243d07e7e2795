#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people install: `make install`, `make uninstall`, `make dist`, completions of shells, Debian packages, and images.

Those of Debian's packages and of images run in `make check-packages` only, as root: the first time they fetch a Debian 12.
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / folder) for folder in ("lib", "vm")]
import machine  # noqa: E402
import machines as m  # noqa: E402
import podman as p  # noqa: E402
import service  # noqa: E402
import towtest as t  # noqa: E402

COMPLETIONS = t.ROOT / "packaging" / "completions"
COMPLETE = COMPLETIONS / "complete"
GIT = ["git", "-c", "safe.directory=*"]
# Below the prefix.
INSTALLED = ("bin/towline", "bin/towlined", "lib/towline/libcuda.so.1", "lib/towline/libnvidia-ml.so.1", "lib/towline/complete",
             "share/doc/towline/README.md", "share/doc/towline/LICENSE", "share/doc/towline/CHANGELOG.md",
             "share/doc/towline/towline.conf", "share/doc/towline/towlined.conf", "share/man/man1/towline.1",
             "share/man/man8/towlined.8", "share/man/man5/towlined.conf.5", "share/bash-completion/completions/towline",
             "share/bash-completion/completions/towlined", "share/fish/vendor_completions.d/towline.fish",
             "share/fish/vendor_completions.d/towlined.fish", "share/zsh/site-functions/_towline")


def version():
    return json.loads((t.BUILD / "meson-info" / "intro-projectinfo.json").read_text())["version"]


def recipe(*words):
    """What make would run; it says so and runs nothing."""
    done = t.run(["make", "-n", "--no-print-directory", "-C", t.ROOT, f"BUILD={t.BUILD}", *words])
    t.equal(done.returncode, 0, f"make -n ({done.stderr})")
    return done.stdout


def install(folder):
    """As `make install DESTDIR=folder` does, but for the prefix: the build's is left as it is. Returns where that is."""
    command = next(line for line in recipe("install", f"DESTDIR={folder}").splitlines() if line.startswith("meson install"))
    done = t.run(command.split())
    t.equal(done.returncode, 0, f"{command} ({done.stdout}{done.stderr})")
    return next(pathlib.Path(folder).rglob("bin/towline")).parent.parent


@t.test(120)
def an_installation_is_whole_and_stripped_and_goes_again():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        prefix = install(folder)
        missing = [file for file in INSTALLED if not (prefix / file).exists()]
        t.equal(missing, [], "what was not installed")
        programs = [path for path in prefix.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        t.check(len(programs) >= 5, f"{programs}")
        for path in programs:
            sections = t.run(["readelf", "-SW", path]).stdout
            t.check(".dynsym" in sections and not re.search(r"\.symtab|\.debug_", sections), f"{path} is not stripped\n{sections}")
        t.check("--strip" not in recipe("install", "SYMBOLS=1"), "SYMBOLS=1 strips, too")
        t.equal(t.run([prefix / "bin/towline", "--version"]).returncode, 0, "the exit code of towline --version")
        command = recipe("uninstall", f"DESTDIR={folder}").splitlines()[-1]
        t.check("tools/uninstall.py" in command, command)
        done = t.run(command.split(), cwd=t.ROOT)
        t.equal(done.returncode, 0, f"{command} ({done.stdout}{done.stderr})")
        t.equal([str(path) for path in pathlib.Path(folder).rglob("*")], [], "what is left")


@t.test()
def uninstalling_leaves_what_others_put_there():
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        prefix = install(folder)
        own = [prefix / "bin/another", prefix / "share/doc/towline/notes"]
        for path in own:
            path.write_text("mine")
        for _ in range(2):  # the second time there is nothing to do
            done = t.run([t.ROOT / "tools" / "uninstall.py", t.BUILD, "--destdir", folder])
            t.equal(done.returncode, 0, done.stderr)
        t.equal(sorted(path for path in prefix.rglob("*") if path.is_file()), sorted(own), "what is left")


@t.test()
def the_version_has_one_place():
    done = t.run([t.TOWLINE, "--version"])
    t.check(done.stdout.split()[1].rstrip(",;") == version(), f"{done.stdout} is not {version()}")
    t.check(f"towline-{version()}.tar.gz" in recipe("dist"), recipe("dist"))
    for path in [t.ROOT / "Makefile", *(t.ROOT / "packaging").rglob("*"), *(t.ROOT / "docs" / "man").iterdir()]:
        if path.is_file():
            t.check(not re.search(rf"(?<![\d.]){re.escape(version())}(?![\d.])", path.read_text()), f"{path} names the version")


@t.test()
def dist_has_every_file_of_the_commit():
    tracked = t.run([*GIT, "-C", t.ROOT, "ls-tree", "-r", "--name-only", "HEAD"])
    if tracked.returncode != 0:
        raise t.Skip("this tree is not a git repository")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        made = []
        for _ in range(2):
            done = t.run(["make", "--no-print-directory", "-C", t.ROOT, "dist", f"BUILD={folder}"])
            t.equal(done.returncode, 0, f"make dist ({done.stdout}{done.stderr})")
            archive = pathlib.Path(done.stdout.split()[-1])
            made.append(archive.read_bytes())
        t.equal(archive.name, f"towline-{version()}.tar.gz", "its name")
        t.check(made[0] == made[1], "two archives of the same commit differ")
        with tarfile.open(archive) as tar:
            names = {member.name for member in tar if not member.isdir()}
        t.equal(names, {f"towline-{version()}/{name}" for name in tracked.stdout.splitlines()}, "its files")


# ---- completions

def offered(*words):
    done = t.run([COMPLETE, *words])
    t.check(done.returncode == 0 and not done.stderr, f"{words}: {done}")
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def flags_of_sources():
    """Of each command of towline the flags that its source takes, as pairs of letter and name."""
    taken = {}
    for path in sorted((t.ROOT / "src" / "cli").glob("*.c")):
        taken[path.stem] = {(letter.strip('"'), name) for letter, name in re.findall(
            r'\{(NULL|"-\w"), "(--[\w-]+)", ', path.read_text())}
    return {**taken, "devices": taken["ask"], "status": taken["ask"]}


@t.test()
def completions_offer_every_flag_and_no_other():
    commands = set(offered(t.TOWLINE, ""))
    t.equal(commands, {"help"} | {path.stem for path in (t.ROOT / "src" / "cli").glob("*.c")
                                  if f"tow_command_{path.stem} = " in path.read_text()}, "commands of towline")
    seen = 0
    for command, pairs in flags_of_sources().items():
        if command in commands:
            given = set(offered(t.TOWLINE, command, "-"))
            for pair in pairs:
                seen += 1
                t.check(given & set(pair), f"towline {command}: neither form of {pair} is offered, only {sorted(given)}")
            t.equal(given - {word for pair in pairs for word in pair}, set(), f"what towline {command} does not take")
    t.check(seen > 10, f"only {seen} flags were seen")
    table = (t.ROOT / "src" / "server" / "config" / "config.c").read_text().partition("class_entries[] = {")[0]
    names = {f"--{name}" for name, rest in re.findall(r'^    \{"([\w-]+)", (.*)', table, re.M) if "NOT_SHOWN" not in rest}
    given = set(offered(t.TOWLINED, ""))
    t.equal({word for word in given if word.startswith("--")}, names | {"--help", "--version"}, "flags of towlined")
    t.equal({word for word in given if not word.startswith("-")}, {"drain", "token"}, "commands of towlined")
    t.equal(set(offered(t.TOWLINED, "token", "create", "-")), {"--user", "--class", "--expires"}, "flags of token create")


@t.test()
def completions_know_values_and_where_the_program_begins():
    for words, wanted in {
        ("run", "-d", ""): ["cuda", "soft", "dry", "!files"],
        ("run", "--device", "soft", ""): ["!command 4"],
        ("run", "-q", "-s", "gpuhost", "--", ""): ["!command 6"],
        ("run", "-s", ""): ["!files"],
        ("run", "-s", "gpuhost", "./program", "-d", ""): ["!command 4"],
        ("doctor", "-s", "gpuhost", "--", ""): ["!command 5"],
        ("doctor", "-"): ["--json", "--server", "-s"],
        ("check", "--json", ""): ["!files"],
        ("check", "--leak-check", "--", ""): ["!command 4"],
        ("bench", "--plot", ""): ["!files"],
        ("version", ""): ["--json"],
        ("help", "ver"): ["run", "devices", "status", "top", "check", "doctor", "usage", "end", "suspend", "resume", "trust", "cdi", "bench", "stats", "timeline", "version", "help"],
        ("there-is-none", ""): [],
    }.items():
        t.equal(offered(t.TOWLINE, *words), wanted, f"after {words}")
    t.equal(offered(t.TOWLINED, "--log-format", ""), ["text", "json"], "after --log-format")
    t.equal(offered(t.TOWLINED, "-l", ""), ["!files"], "after -l")
    t.equal(offered("/nowhere/towline", ""), [], "of a program that is not there")


def shell_file(shell, folder):
    path = pathlib.Path(folder, f"towline.{shell}")
    path.write_text((COMPLETIONS / path.name).read_text().replace("@libdir@", str(COMPLETIONS)))
    return path


def need(shell):
    if not shutil.which(shell):
        raise t.Skip(f"{shell} is not installed")


# What each shell says for a command line that ends with its last word.
ASKED = {
    ("bench", "--pl"): {"--plot"},
    ("run", "--d"): {"--device"},
    ("st",): {"status", "stats"},
}


@t.test()
def bash_completes():
    need("bash")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = shell_file("bash", folder)
        pathlib.Path(folder, "file with spaces").touch()
        for words, wanted in {**ASKED, ("run", "-d", "fi"): {"file with spaces"}, ("run", "--", "basenam"): {"basename"}}.items():
            script = (f'compopt() {{ :; }}; source "{path}"; COMP_WORDS=("$@"); COMP_CWORD={len(words)}; _towline; '
                      'printf "%s\\n" "${COMPREPLY[@]}"')
            done = t.run(["bash", "--norc", "-c", script, "bash", t.TOWLINE, *words], cwd=folder)
            t.equal(set(done.stdout.splitlines()), wanted, f"{words} ({done.stderr})")


@t.test()
def fish_completes():
    need("fish")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        env = {**os.environ, "HOME": folder, "PATH": f"{t.TOWLINE.parent}:{os.environ['PATH']}"}
        path = shell_file("fish", folder)
        for words, wanted in {**ASKED, ("run", "--", "basenam"): {"basename"}}.items():
            done = t.run(["fish", "--no-config", "-c", f'source "{path}"; complete -C "towline {" ".join(words)}"'], env=env)
            t.equal({line.split("\t")[0] for line in done.stdout.splitlines()}, wanted, f"{words} ({done.stderr})")


@t.test()
def zsh_completes():
    """What its completion functions are called with; they themselves need a terminal."""
    need("zsh")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path = shell_file("zsh", folder)
        for words, wanted in {("run", "-"): "describe --device", ("st",): "describe run:run a program on a GPU that is elsewhere",
                              ("run", "-d", ""): "files", ("run", "--", "ls", "a"): "normal 2 ls a"}.items():
            script = ('_describe() { print -l "describe ${(@P)^3}" }; _files() { print files }; '
                      '_normal() { print normal $CURRENT $words }; words=("$@"); CURRENT=$#; '
                      f'_towline() {{ source "{path}" }}; _towline')
            done = t.run(["zsh", "-f", "-c", script, "zsh", t.TOWLINE, *words])
            t.check(wanted in done.stdout.splitlines() and not done.stderr, f"{words}: {done.stdout}{done.stderr}")


# ---- Debian packages: what `make deb` has left in the build

WANTED = ("plain",) if "TOW_TESTS_PACKAGES" in os.environ else ()
DEB = t.BUILD / "deb"
MIRROR = "http://deb.debian.org/debian"
# What apt and dpkg keep for themselves, what is mounted, and the files that the test brings.
NOT_COMPARED = re.compile(r"(proc|sys|dev|run|tmp|root|var/lib/(dpkg|apt)|var/cache/(apt|ldconfig|debconf)|var/log|etc/ld\.so\.cache)(/|$)")


def debian_tarball():
    """A Debian 12 without anything, made once for this user."""
    for tool in ("debootstrap", "unshare", "dpkg"):
        if not shutil.which(tool):
            raise t.Skip(f"{tool} is not installed (apt install debootstrap)")
    if os.geteuid() != 0:
        raise t.Skip("only root can make a chroot")
    machine = t.run(["dpkg", "--print-architecture"]).stdout.strip()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "towline-tests")
    kept = cache / f"debian12-{machine}.tar"
    cache.mkdir(parents=True, exist_ok=True)
    with t.locked(cache / "lock"):
        if not kept.exists():
            with tempfile.TemporaryDirectory(prefix="tow") as folder:
                done = t.run(["debootstrap", "--variant=minbase", "--include=libssl3", "bookworm", folder, MIRROR], timeout=1200)
                if done.returncode != 0:
                    raise t.Skip(f"no Debian 12 could be made: {(done.stdout.splitlines() or [done.stderr])[-1]}")
                made = t.run(["tar", "-C", folder, "-cf", f"{kept}.new", "."], timeout=300)
                t.equal(made.returncode, 0, f"tar ({made.stderr})")
                os.replace(f"{kept}.new", kept)
    return kept


class Debian:
    """A fresh Debian 12, in which commands have processes of their own that end with them, and no network."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        done = t.run(["tar", "-C", folder, "-xf", debian_tarball()], timeout=300)
        t.equal(done.returncode, 0, f"tar ({done.stderr})")
        self.root.chmod(0o755)  # workers have users of their own, and look into it, too

    def run(self, script, timeout=300):
        """What the script says; it must succeed."""
        inside = f"mount -t proc proc {self.root}/proc && exec chroot {self.root} /bin/sh -ec \"$0\""
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        done = t.run(["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", inside, script], timeout, env=env)
        print(f"$ {script}\n{done.stdout}{done.stderr}")
        t.equal(done.returncode, 0, f"the exit code of: {script}\n{done.stdout}{done.stderr}")
        return done.stdout

    def files(self):
        found = set()
        for folder, folders, names in os.walk(self.root):
            here = os.path.relpath(folder, self.root)
            found.update(os.path.normpath(os.path.join(here, name)) for name in folders + names)
        return {name for name in found if not NOT_COMPARED.match(name)}


def packages(folder):
    found = sorted(pathlib.Path(folder).glob("*.deb"))
    t.equal([path.name.split("_")[0] for path in found], ["towline", "towlined"], f"the packages in {folder}; run make deb")
    return found


@t.test(300, trees=WANTED)
def debian_lintian_finds_no_errors():
    if not shutil.which("lintian"):
        raise t.Skip("lintian is not installed")
    done = t.run(["lintian", "--fail-on", "error", "--allow-root", *packages(DEB)], timeout=300)
    print(done.stdout)
    t.equal(done.returncode, 0, f"lintian's exit code\n{done.stdout}{done.stderr}")


SERVED = """
towlined --device=soft --soft-memory=64M -l /run/towline.sock 2>/tmp/log & server=$!
tries=0
until towline devices >/tmp/devices 2>&1; do
    tries=$((tries + 1)); [ $tries -lt 300 ] || { cat /tmp/devices /tmp/log; exit 1; }; sleep 0.2
done
cat /tmp/devices
towline run -- /root/vectoradd
towlined token create --user ann >/dev/null
kill $server; wait $server || true
"""


def computes(said):
    t.check(re.search(r"^vectoradd: \d+ sums are right, computed on .*\nOK$", said, re.M), f"the program's result: {said}")


def look_at_installed(debian):
    t.equal(debian.run("dpkg -V towline towlined"), "", "what dpkg says of the files")
    t.equal(debian.run("ldconfig && ldconfig -p | grep -E 'libcuda|libnvidia|towline' || true"), "", "what every program would load")
    for target, unit in (("multi-user.target", "towlined.service"), ("sockets.target", "towlined.socket")):
        t.check((debian.root / f"etc/systemd/system/{target}.wants/{unit}").is_symlink(), f"{unit} is not enabled")
    conffiles = debian.run("dpkg-query -W -f '${Conffiles}\n' towline towlined").split()[::2]
    t.equal(conffiles, ["/etc/towline/towline.conf", "/etc/towline/towlined.conf"], "configuration files")
    t.check(debian.run("towline --version").startswith(f"towline {version()}"), "towline --version")
    debian.run("towlined --version")


def make_later(folder):
    """The same packages once more, as version 99.0."""
    shutil.copytree(DEB / "towline" / "staged", pathlib.Path(folder, "towline", "staged"), symlinks=True)
    pathlib.Path(folder, "towline", "debian").mkdir()
    done = t.run([t.ROOT / "packaging" / "make-deb", folder, "99.0"], timeout=300)
    t.equal(done.returncode, 0, f"make-deb ({done.stderr})")
    return packages(folder)


@t.test(1800, alone=True, trees=WANTED)
def debian_12_installs_upgrades_removes_and_purges():
    program = t.build_c(t.ROOT / "examples" / "driver" / "vectoradd.c", ["-lcuda"], include=t.our_include_flags())
    with tempfile.TemporaryDirectory(prefix="tow") as folder, tempfile.TemporaryDirectory(prefix="tow") as later:
        debian = Debian(folder)
        for path in [program, *packages(DEB), *make_later(later)]:
            shutil.copy(path, debian.root / "root")
        before = debian.files()

        debian.run(f"cd /root && apt-get install -qq ./towline_{version()}-1_*.deb ./towlined_{version()}-1_*.deb")
        look_at_installed(debian)
        computes(debian.run("towline run -- /root/vectoradd"))
        computes(debian.run(SERVED))
        was = debian.files()
        debian.run(f"cd /root && apt-get install -qq --reinstall ./towline_{version()}-1_*.deb ./towlined_{version()}-1_*.deb")
        t.equal(debian.files() ^ was, set(), "what the same packages change once more")

        config = debian.root / "etc/towline/towlined.conf"
        config.write_text(config.read_text() + "device = soft\n")
        debian.run("cd /root && apt-get install -qq ./towline_99.0-1_*.deb ./towlined_99.0-1_*.deb")
        t.equal(debian.run("dpkg-query -W -f '${Version} ' towline towlined").split(), ["99.0-1", "99.0-1"], "versions")
        t.check(config.read_text().endswith("device = soft\n"), "the administrator's change is gone")
        computes(debian.run("towline run -- /root/vectoradd"))

        debian.run("apt-get remove -qq towline towlined")
        left = debian.files() - before
        print("\n".join(sorted(left)))
        t.check({"etc/towline/towlined.conf", "var/lib/towline/tokens"} <= left, f"a removal takes settings or tokens: {left}")
        t.check(not any(name.startswith(("usr/bin", "usr/lib", "usr/share")) for name in left), f"a removal leaves {left}")
        debian.run("apt-get purge -qq towline towlined")
        t.equal(debian.files() ^ before, set(), "what a purge leaves or takes")


def running(vm):
    """The files of the server's processes in the guest, whatever they call themselves."""
    done = vm.run("for each in /proc/[0-9]*; do readlink $each/exe; done | grep /towlined")
    t.check(done.returncode == (0 if done.stdout else 1), f"grep ends with {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


@t.test(900, alone=True, trees=WANTED)
def debian_upgrade_leaves_programs_running():
    """In a guest whose first process is systemd: what the packages' own scripts do there."""
    with machine.guest("debian") as vm, tempfile.TemporaryDirectory(prefix="tow", dir=t.BUILD) as later:
        pathlib.Path(later).chmod(0o755)
        vm.run("mkdir -p /etc/towline && cat > /etc/towline/towlined.conf", input=b"device = soft\nsoft-memory = 64M\n", check=True)

        def install(files):
            # The guest's dpkg does not know what the guest has.
            return vm.run(["dpkg", "--force-depends", "--force-confold", "-i", *map(vm.path, files)], timeout=300, check=True)
        try:
            install(packages(DEB))
            service.knock(vm, service.SOCKET)
            main = service.main_process(vm, "0")
            with service.Rounds(vm, "/usr/bin/towline") as rounds:
                install(make_later(later))
                t.equal(vm.run("dpkg-query -W -f '${Version} ' towline towlined").stdout.split(), ["99.0-1", "99.0-1"], "versions")
                main = service.main_process(vm, main)
                service.knock(vm, service.SOCKET)
                t.equal(vm.run(f"readlink /proc/{main}/exe").stdout, "/usr/bin/towlined\n", "the new server's file")
                t.equal(vm.run(f"readlink /proc/{rounds.worker}/exe").stdout, "/usr/bin/towlined (deleted)\n", "the worker's file")
                rounds.goes_on("an upgrade")
                rounds.end()
            install(packages(DEB))  # and back
            service.knock(vm, service.SOCKET)
            t.check("/usr/bin/towlined" in running(vm), "nothing runs before the packages are gone")
            vm.run("dpkg -r towlined towline", check=True, timeout=300)
            t.equal(running(vm), [], "what runs after the packages are gone")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{service.journal(vm)}") from None


@t.test(900, alone=True, trees=WANTED)
def debian_guide_for_the_first_hour():
    """Each command as it stands on the page, on two fresh machines."""
    m.need()
    program = t.build_c(t.ROOT / "examples" / "driver" / "vectoradd.c", ["-lcuda"], include=t.our_include_flags())
    with tempfile.TemporaryDirectory(prefix="tow") as one, tempfile.TemporaryDirectory(prefix="tow") as other:
        roots = {"gpuhost": Debian(one).root, "laptop": Debian(other).root}
        with m.two(one, roots) as both:
            for machine in both.values():
                for path in packages(DEB):
                    shutil.copy(path, machine.home)
            shutil.copy(program, both["laptop"].home / "app")
            # A Debian without anything has no Python.
            python = roots["laptop"] / "usr" / "local" / "bin" / "python3"
            python.write_text("#!/bin/sh\n./app >/dev/null && echo trained\n")
            python.chmod(0o755)
            m.follow(t.ROOT / "docs" / "guide" / "first-hour.md", both, ("install", "run"))


def load(podman, name):
    archive = t.BUILD / "image" / f"{name}.tar"
    done = podman.call("load", "-q", "-i", archive, timeout=300)
    t.equal(done.returncode, 0, f"podman load of {archive}; run make image ({done.stderr})")
    return f"localhost/{name}:{version()}"


@t.test(600, alone=True, trees=WANTED)
def debian_images_serve_and_run():
    """The server's and the client's image, each as docs/guide/containers.md starts it, on the software GPU."""
    p.need()
    program = t.build_c(t.ROOT / "examples" / "driver" / "vectoradd.c", ["-lcuda"], include=t.our_include_flags())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{}".format(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="tow") as one, tempfile.TemporaryDirectory(prefix="tow") as other:
        server, client = p.Podman(one), p.Podman(other)
        words = server.runs(load(server, "towlined"), program=("--device=soft", "--soft-memory=64M", "-l", address, "--grace=0"))
        image = load(client, "towline")
        with open(pathlib.Path(one, "log"), "w") as log:
            process = subprocess.Popen(server.command(*words), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=server.env)
        try:
            t.wait_until(lambda: "serves soft" in pathlib.Path(one, "log").read_text() or process.poll() is not None, 60, "the server serves")
            done = client.run(image, "-e", f"TOWLINE_SERVER={address}", program=())
            t.check(done.returncode == 0 and "Towline Software GPU" in done.stdout, f"what the client's image does by itself: {done}")
            done = client.run(image, "-e", f"TOWLINE_SERVER={address}", "-v", f"{program}:/program:ro")
            computes(done.stdout)
        finally:
            process.terminate()
            t.check(process.wait(60) is not None, "the server's container does not end")
            print(pathlib.Path(one, "log").read_text())


if __name__ == "__main__":
    t.main()
