# SPDX-License-Identifier: Apache-2.0
"""The harness of the system tests: servers, programs, and how a test says what happened.

A module defines tests with @test and ends with main(); tests/run starts each in a process of its own.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TOWLINE_BUILD", ROOT / "build")).resolve()
TREE = os.environ.get("TOWLINE_TREE", "plain")
TOWLINE = BUILD / "bin" / "towline"
TOWLINED = BUILD / "bin" / "towlined"
LIBCUDA = BUILD / "lib" / "libcuda.so.1"
PROGRAMS = ROOT / "tests" / "system" / "programs"
LONG = "TOW_TESTS_LONG" in os.environ  # make check-long: tests that go on for some time do so for longer
WHOLE = LONG or "TOW_TESTS_WHOLE" in os.environ  # `make test` of .ci/run: more is drawn, nothing is left out
SLOW = 1 if TREE == "plain" else 5  # how much longer sanitized code may take

# In these tests unix:// is the plain socket and shm:// shared memory; the client's own choice is tested by name.
os.environ.setdefault("TOWLINE_TRANSPORT", "unix")

_tests = {}
_any_user = ""


class Skip(Exception):
    """This test cannot run here; the text says why."""


def test(limit=60, alone=False, trees=("plain",), name=None, matrix="", uses="", waits=False, whole=False):
    """Makes a function a test: `limit` in seconds (times SLOW), `alone` if nothing may run beside it. `matrix` names those
    that are many and alike: `make test` runs them all, and where time is short a few of them are drawn. `uses` names
    what only one at a time can have: those that share it do not run beside each other. `waits`: for seconds, and computes
    next to nothing meanwhile; such tests run beside the others. `whole`: it takes long and is of no feature, so it is
    skipped where WHOLE does not say so."""
    def add(function):
        if TREE in trees:
            tried = function if WHOLE or not whole else left_to_ci
            _tests[name or function.__name__] = (tried, limit * SLOW, alone, matrix or _any_user, uses, waits)
        return function
    return add


def same_for_all_users():
    """Said by a file before its tests: what they see does not depend on the user. .ci/as-user draws from them, as from all of
    this matrix; they are run by root, too."""
    global _any_user
    _any_user = "the same for all users" if TREE == "plain" else ""


def left_to_ci():
    raise Skip("left to .ci/run (TOW_TESTS_WHOLE=1)")


def main():
    if sys.argv[1:] == ["--list"]:
        for name, (_, limit, alone, matrix, uses, waits) in _tests.items():
            print(f"{name}\t{limit}\t{int(alone)}\t{matrix}\t{uses}\t{int(waits)}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # what `with` holds ends, too
    for name in sys.argv[1:] or list(_tests):
        try:
            _tests[name][0]()
        except Skip as reason:
            print(reason)
            sys.exit(77)


def check(condition, text):
    """An assertion that stays whatever flags Python gets."""
    if not condition:
        raise AssertionError(text)


def equal(got, wanted, what):
    check(got == wanted, f"{what} is {got!r}, not {wanted!r}")


def wait_until(condition, seconds, what):
    """Waits, and says how long it took; at most that long times SLOW, and 20 s in any case: the machine may be busy."""
    start, most = time.monotonic(), max(seconds, 20) * SLOW
    while not condition():
        check(time.monotonic() - start < most, f"not within {most:g} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - start


@functools.lru_cache
def commit_seed():
    """Another number for each commit; 0 where there is no history. .ci/run says which it is."""
    if said := os.environ.get("TOW_TESTS_COMMIT"):
        return int(said[:8], 16)
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    return int(done.stdout.strip()[:8], 16) if done.returncode == 0 else 0


def drawn(things, count, what=""):
    """So many of things that are alike, other ones for each commit, and for each `what`; twice as many where WHOLE says so, and
    all of them where LONG does."""
    import hashlib  # here alone: few tests draw

    if LONG:
        return list(things)
    count *= 2 if WHOLE else 1
    seed = f"{commit_seed()} {what}".strip()
    first = sorted(things, key=lambda thing: hashlib.sha256(f"{seed} {thing}".encode()).digest())
    return [thing for thing in things if thing in first[:count]]


def ways(things, what):
    """The transports and the like over which the same is tried: `make test` takes one, other parts draw from all."""
    return drawn(things, 1, what) if TREE == "plain" else list(things)


def changed_files():
    """What differs from the commit before this one, in this working tree; nothing where there is no history."""
    done = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(ROOT), "diff", "--name-only", "HEAD~1"], capture_output=True, text=True)
    return {ROOT / name for name in done.stdout.splitlines()} if done.returncode == 0 else set()


def gone(pid):
    """Whether that process has ended, reaped or not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or between that and the reading
        return True


# ---- tools that look at the source ----

def each_file(command, paths, at_once):
    """Runs a tool over files, some at a time and on all processors; what it wrote, and a line `error: ...` where it failed."""
    import concurrent.futures  # here alone: it takes a fifth of what a process needs to begin

    def ask(group):
        done = subprocess.run([*command, *map(str, group)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
        return done.stdout + (f"\nerror: {command[0]}: exit code {done.returncode}\n" if done.returncode else "")

    groups = [paths[i:i + at_once] for i in range(0, len(paths), at_once)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        return "".join(pool.map(ask, groups))


def tool(name):
    if not shutil.which(name):
        raise Skip(f"there is no {name} (apt install {name})")
    return name


# ---- sanitizers ----

REPORTS = re.compile(r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error:")


def check_no_report(text, what):
    check(not REPORTS.search(text), f"a sanitizer complains in {what}:\n{text}")


def sanitizer_library():
    """The run-time that an unsanitized program must preload to use a sanitized library; None: none."""
    if TREE != "asan":
        return None
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    return found if os.path.isabs(found) else None


# ---- servers ----

def sees_all_processes():
    """Whether this may look into processes that hide from their own user, as towlined and its workers do."""
    found = re.search(r"^CapEff:\s*(\w+)$", pathlib.Path("/proc/self/status").read_text(), re.M)
    return bool(int(found.group(1), 16) >> 19 & 1)  # CAP_SYS_PTRACE


# For a server into whose processes a test looks.
SEEN = () if sees_all_processes() else ("--walls=0",)


def processor_times(pid):
    """In ms: how long it has run, and waited for a processor; what the machine's host has kept for itself."""
    try:
        ran, waited, _ = map(int, pathlib.Path(f"/proc/{pid}/schedstat").read_text().split())
    except OSError:  # it has ended, or the kernel does not count
        ran = waited = 0
    stolen = int(pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])
    return ran / 1e6, waited / 1e6, stolen * 1000 / os.sysconf("SC_CLK_TCK")


def passed_since(pid, before):
    """Whether a server that did not answer was kept from it, or stood still."""
    ran, waited, stolen = (now - then for now, then in zip(processor_times(pid), before))
    return f"meanwhile process {pid} ran {ran:.0f} ms and waited {waited:.0f} ms for a processor; the host kept {stolen:.0f} ms for itself"


class Server:
    """A towlined (this build's) on the software GPU, with its own folder. Use with `with`."""

    def __init__(self, *flags, device="soft", listen=None, env=None, memory="2G", files=None,
                 towlined=TOWLINED):
        self.towlined = towlined
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="towline-test-"))
        self.socket = self.folder / "sock"
        self.log_path = self.folder / "log"
        self.listen = listen if listen is not None else [f"unix://{self.socket}", "tcp://127.0.0.1:0"]
        self.flags = [f"--listen={address}" for address in self.listen] + list(flags)
        if device and "/" in str(device) and os.path.exists(device):
            device = shutil.copy(device, self.folder)  # root's workers cannot look into a checkout that is another user's
        if device:
            self.flags.append(f"--device={device}")
        if device == "soft" and not any("soft-memory" in flag for flag in flags):
            self.flags.append(f"--soft-memory={memory}")
        if towlined == TOWLINED and not any("grace" in flag for flag in flags):
            self.flags.append("--grace=0")  # at the end of a test nobody waits for programs
        if not any("cache-dir" in flag for flag in flags):
            self.flags.append(f"--cache-dir={self.folder / 'cache'}")
        self.env = dict(os.environ, **(env or {}))
        self.limit = ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"] if files else []
        self.process = None
        self.process_options = {}

    def __enter__(self):
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([*self.limit, str(self.towlined), *self.flags], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=self.env, start_new_session=True, **self.process_options)
        try:
            wait_until(lambda: re.search(r"[ \"]serves ", self.log()) or self.process.poll() is not None, 20, "the server serves")
            check(self.process.poll() is None, f"towlined has ended:\n{self.log()}")
        except BaseException:
            self.__exit__(AssertionError, None, None)
            raise
        return self

    def log(self):
        return self.log_path.read_text(errors="replace")

    def address(self, kind="unix"):
        if kind in ("unix", "shm"):
            return f"{kind}://{self.socket}"
        return re.search(rf"listens on ({kind}://[^\s\"]+)", self.log()).group(1)

    def port(self, kind="tcp"):
        return int(self.address(kind).rsplit(":", 1)[1])

    def status(self):
        asked = self.listener if self.process.poll() is None else self.process.pid
        before = processor_times(asked)
        done = subprocess.run([str(TOWLINE), "status", "-s", self.address(), "--json"], capture_output=True, text=True,
                              timeout=60 * SLOW)
        check(done.returncode == 0, f"towline status: {done.stderr}\n{passed_since(asked, before)}")
        return json.loads(done.stdout)[0]["report"]

    def workers(self):
        """Process numbers of all workers, idle ones too."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(word) for word in children.split() if self._name(word) not in ("tow-cache", "tow-listener")]

    @property
    def listener(self):
        """The process that hears clients: a child of the first one where root has started it."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return next((int(word) for word in children.split() if self._name(word) == "tow-listener"), self.process.pid)

    @staticmethod
    def _name(pid):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        return ""

    def resident(self):
        """Bytes that the listener and all workers keep: their pages, and memfds (twice, where they are mapped as well)."""
        pages, memfds = 0, {}
        for pid in {self.process.pid, self.listener, *self.workers()}:
            with contextlib.suppress(OSError):  # it has just ended
                found = re.search(r"^Pss:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
                pages += int(found.group(1)) << 10 if found else 0
                for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        if os.readlink(descriptor).startswith("/memfd:"):
                            memfds[descriptor.stat().st_ino] = descriptor.stat().st_blocks * 512
        return pages + sum(memfds.values())

    def settled(self):
        """resident(), once no worker is about to start."""
        sizes = []

        def same():
            sizes.append(self.resident())
            return len(sizes) > 5 and abs(sizes[-1] - sizes[-6]) < 1 << 20
        wait_until(same, 20, "the server's memory stays the same")
        return sizes[-1]

    def forgets(self, worker, before, spare=48 << 20):
        """Soon a session's worker is gone, its memory (more than `spare`) free, and the status without it."""
        seconds = wait_until(lambda: gone(worker) and self.resident() < before + spare and worker not in [
            session["worker_pid"] for session in self.status()["sessions"]], 2,
            f"a worker is gone, its session not listed, and its memory free ({before >> 20} MiB were in use before)")
        print(f"the worker was gone and its memory free after {seconds:.2f} s")

    def stop(self):
        """SIGTERM; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60 * SLOW)

    def __exit__(self, kind, *_):
        code = None
        if self.process.poll() is None:
            try:
                code = self.stop()
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                code = "no end"
        log = self.log()
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is not None:
            print(f"--- log of towlined\n{log}")
            return
        check_no_report(log, "towlined's log")
        if code is not None:
            equal(code, 0, f"towlined's exit code after SIGTERM (log:\n{log})")


def as_user(user, function, *words):
    """The error's name that a process of that user gets, or "yes"."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "yes"
        try:
            if user != os.geteuid():
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            function(*words)
        except OSError as error:
            said = errno.errorcode[error.errno]
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def need_tls():
    """Skips where clients cannot use tls:// addresses."""
    try:
        ctypes.CDLL("libssl.so.3")
    except OSError as error:
        raise Skip("OpenSSL 3 is not installed (libssl3)") from error


def kinds():
    """The kinds of lines that can be had here."""
    with contextlib.suppress(Skip):
        need_tls()
        return ("unix", "shm", "tcp", "tls")
    return ("unix", "shm", "tcp")


class TlsServer(Server):
    """One that listens on tls:// too. `settings` are the environment of clients that know its key."""

    def __init__(self, *flags, **more):
        super().__init__(*flags, **more)
        self.flags += ["--listen=tls://127.0.0.1:0", f"--token-file={self.folder / 'tokens'}"]  # its key is beside that file
        self.settings = {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / "config")}

    def __enter__(self):
        super().__enter__()
        done = run([TOWLINE, "trust", self.address("tls")], env=dict(os.environ, **self.settings))
        equal(done.returncode, 0, f"the exit code of towline trust ({done.stderr})")
        return self


# ---- programs ----

@contextlib.contextmanager
def locked(path):
    """Several test processes build the same programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def find_nvcc():
    for path in (os.environ.get("NVCC"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if path and os.access(path, os.X_OK):
            return path
    return None


def include_flags():
    """Where cuda.h is: the toolkit's, else ours."""
    nvcc = find_nvcc()
    if nvcc:
        folder = pathlib.Path(nvcc).resolve().parent.parent / "include"
        if (folder / "cuda.h").exists():
            return [f"-I{folder}"]
    return our_include_flags()


def our_include_flags():
    header = BUILD / "include" / "cuda.h"
    source = BUILD / "src" / "gen" / "cuda_abi.h"
    if not header.exists() or header.stat().st_mtime < max(part.stat().st_mtime for part in source.parent.glob("*.h")):
        subprocess.run([sys.executable, str(ROOT / "tools" / "cuda_header.py"), str(source), str(header)], check=True)
    return [f"-I{BUILD / 'include'}"]


def build(command, target, sources):
    """Runs a compiler if the target is older than a source; raises with what it said."""
    target.parent.mkdir(parents=True, exist_ok=True)
    newest = max(source.stat().st_mtime for source in sources)
    if target.exists() and target.stat().st_mtime > newest:
        return target
    partial = target.with_name(target.name + ".partial")
    done = subprocess.run([*command, "-o", str(partial)], capture_output=True, text=True)
    check(done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    partial.rename(target)
    return target


def sanitize_flags():
    return {"plain": [], "asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"]}[TREE]


def _userfaultfd(flags):
    number = {"x86_64": 323, "aarch64": 282}[os.uname().machine]
    opened = ctypes.CDLL(None, use_errno=True).syscall(number, os.O_CLOEXEC | flags)
    if opened >= 0:
        os.close(opened)
    return opened >= 0


def must_watch():
    """Whether a program may watch its memory here, system calls included."""
    if not _userfaultfd(0):
        try:
            os.close(os.open("/dev/userfaultfd", os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            raise Skip("userfaultfd is not permitted here") from None


def must_track():
    """Whether the kernel tells a program which of its pages were written, without any rights."""
    if tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (6, 7):
        raise Skip("this kernel does not tell which pages were written (Linux 6.7 does)")
    if not _userfaultfd(1):  # UFFD_USER_MODE_ONLY
        raise Skip("userfaultfd is not permitted here, not even for user mode only")


def build_c(source, flags=(), name=None, include=None):
    """A C program of this tree (sanitized as it is), linked to this build's libcuda with -lcuda among flags."""
    target = BUILD / "test-programs" / (name or source.stem)
    with locked(target.with_name(target.name + ".lock")):
        command = ["gcc", "-std=gnu17", "-g", "-O1", "-pthread", *sanitize_flags(), *(include or include_flags()),
                   str(source), f"-L{BUILD / 'lib'}", *flags]
        return build(command, target, [source, *source.parent.glob("*.h"), ROOT / "tests" / "lib" / "heap.h", LIBCUDA])


def build_cuda(sources, flags, variant, name):
    """An nvcc program. It knows nothing of Towline, so all trees share it."""
    nvcc = find_nvcc()
    if not nvcc:
        raise Skip("nvcc is not installed")
    plain = BUILD if TREE == "plain" else BUILD.with_name(BUILD.name.removesuffix(f"-{TREE}"))
    folder = plain / "test-programs"
    # static and shared differ in linking only, and compiling takes longest.
    link = [word for i, word in enumerate(variant) if word == "-cudart" or (i and variant[i - 1] == "-cudart")]
    compile_flags = [word for word in variant if word not in link]
    stem = name.split(".")[0] + "".join(compile_flags).replace("-", "_").replace("/", "_")
    depends = [*sources, *sources[0].parent.glob("*.h")]
    objects = []
    with locked(folder / f"{stem}.lock"):
        for source in sources:
            command = [nvcc, *flags, *compile_flags, "-c", str(source)]
            objects.append(build(command, folder / f"{stem}.{source.stem}.o", depends))
        return build([nvcc, *flags, *link, *map(str, objects)], folder / name, [*depends, *objects])


def run(command, timeout=60, **more):
    """A command that must end in time; its whole group is killed if it does not."""
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, **more)
    try:
        out, err = process.communicate(timeout=timeout * SLOW)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"no end after {timeout * SLOW} s: {' '.join(map(str, command))}\n{out}{err}")
    check_no_report(err, " ".join(map(str, command)))
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def preloaded():
    """What stands before a program that is not sanitized itself, Python for one."""
    library = sanitizer_library()
    # Leaks of NVIDIA's and the program's own are not ours to judge.
    return ["env", f"LD_PRELOAD={library}", "ASAN_OPTIONS=detect_leaks=0:exitcode=99:abort_on_error=0"] if library else []


def towline_run(address, command, timeout=60, env=None, preload=False):
    """`towline run -s ADDRESS -- COMMAND`; `preload` for programs that are not sanitized themselves."""
    before = preloaded() if preload else []
    return run([TOWLINE, "run", "-s", address, "--", *before, *command], timeout, env=dict(os.environ, **(env or {})))


@contextlib.contextmanager
def held(server, mode, kind="unix", **env):
    """A program (hold.c) that has a session; the process is the program itself. One that is to leave does so at the end of its input."""
    program = build_c(ROOT / "tests" / "system" / "helpers" / "hold.c", ["-lcuda"], "hold")
    process = subprocess.Popen([str(TOWLINE), "run", "-s", server.address(kind), "--", str(program), mode], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env})
    try:
        line = process.stdout.readline()
        check(line == "ready\n", f"hold {mode} said {line!r} {process.stderr.read() if not line else ''}")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextlib.contextmanager
def configured(text, *flags):
    """A server with these settings; its `config` is their file."""
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        config = pathlib.Path(folder) / "towlined.conf"
        config.write_text(text)
        server = Server(f"--config={config}", *flags)
        server.config = config
        with server:
            yield server


def clean_environment(**more):
    """This environment without what chooses a server."""
    env = {key: value for key, value in os.environ.items()
           if not key.startswith("TOWLINE_") or key in ("TOWLINE_BUILD", "TOWLINE_TREE")}
    env.update(more)
    return env
