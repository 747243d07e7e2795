#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""towline doctor: set-ups that are broken, one cause each. It names the cause, says what mends it, and ends with 1 where a
program would not run."""

import json
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402
import web  # noqa: E402

BOTH = ("plain", "asan")
LEVELS = ("ok", "hint", "warning", "wrong")


def visit(*words, timeout=90, prefix=(), **variables):
    """What the doctor says, as --json has it."""
    done = t.run([*prefix, t.TOWLINE, "doctor", "--json", *words], timeout, env=t.clean_environment(**variables))
    report = json.loads(done.stdout)
    t.equal(done.stderr, "", "what it writes to stderr")
    for finding in report["findings"]:
        t.check(finding["level"] in LEVELS and finding["text"] and finding["group"] and finding["check"], f"a finding: {finding}")
        if finding["level"] in ("warning", "wrong"):
            t.check(finding.get("mend"), f"nothing mends {finding}")
    wrong = [finding for finding in report["findings"] if finding["level"] == "wrong"]
    t.equal((done.returncode, report["runs"]), (1 if wrong else 0, not wrong), f"exit code and runs, of {wrong}")
    return report


def finds(report, level, check, text, mend):
    """One finding has these words, and what mends it those."""
    seen = [finding for finding in report["findings"] if finding["check"] == check and re.search(text, finding["text"])]
    t.check(seen, f"nothing of {check} says {text!r}:\n{json.dumps(report, indent=1)}")
    t.equal(seen[0]["level"], level, f"the level of {seen[0]}")
    t.check(mend is None or mend in seen[0].get("mend", ""), f"{mend!r} is not what mends {seen[0]}")
    t.equal(report["runs"], not any(finding["level"] == "wrong" for finding in report["findings"]), "runs")
    return seen[0]


def compiled(folder, name, *flags, source="int main(void) { return 0; }\n"):
    """A small program, or library, of this folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["gcc", "-x", "c", "-", "-o", str(path), *flags], input=source, capture_output=True, text=True)
    t.check(done.returncode == 0, done.stderr)
    return path


def other_driver(folder):
    """A libcuda.so.1 that is not ours, called as NVIDIA's packages do."""
    real = compiled(folder, "libcuda.so.535.104.05", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", source="int cuInit(int n) { return n; }\n")
    link = folder / "libcuda.so.1"
    link.symlink_to(real.name)
    return link


@t.test(120, trees=BOTH)
def a_sound_set_up_is_told():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        program = compiled(pathlib.Path(base), "app")
        report = visit("-s", server.address(), "--", program, TOWLINE_TRANSPORT="")
        t.equal([finding for finding in report["findings"] if finding["level"] == "wrong"], [], "what is wrong")
        finds(report, "ok", "libcuda", r"app gets .*/lib/libcuda\.so\.1, Towline's \(LD_LIBRARY_PATH\)", None)
        finds(report, "ok", "identity", f"takes you for user {os.getuid()}$", None)
        finds(report, "ok", "version", "the same version", None)
        finds(report, "ok", "way", "shared memory", None)
        finds(report, "ok", "library", "all libraries", None)
        finds(report, "ok", "trial", "a trial program ran", None)
        t.check(all(report["figures"][name] > 0 for name in ("launch_us", "up_gb_s", "down_gb_s")), report["figures"])
        t.equal((report["program"], report["runs"]), (str(program), True), "program and runs")
        # The same for people.
        done = t.run([t.TOWLINE, "doctor", "-s", server.address()], env=t.clean_environment(TOWLINE_TRANSPORT=""))
        t.equal((done.returncode, done.stderr), (0, ""), "how it ends")
        t.check("\nA program would run: 0 wrong" in done.stdout and "\nThe loader\n  ok  " in done.stdout, done.stdout)
        t.check("\033" not in done.stdout, "colours without a terminal")


@t.test(120, trees=BOTH)
def a_private_software_gpu_will_do():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        report = visit(XDG_RUNTIME_DIR=base, XDG_CONFIG_HOME=base, XDG_CACHE_HOME=base)
        finds(report, "hint", "choice", "starts a private one", "TOWLINE_SERVER")
        finds(report, "ok", "trial", "ran", None)
        t.wait_until(lambda: not list(pathlib.Path(base).glob("towline-*")), 20, "the private server's folder is gone")


# ---- the loader ----

@t.test(120)
def an_rpath_that_finds_another_driver():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        folder = pathlib.Path(base)
        driver = other_driver(folder / "driver")
        old = compiled(folder, "old", f"-Wl,--disable-new-dtags,-rpath,{driver.parent}")
        report = visit("-s", server.address(), "--", old)
        found = finds(report, "wrong", "libcuda", r"old gets .*/driver/libcuda\.so\.1 \(NVIDIA's driver 535\.104\.05\) \(RPATH from file .*old\)",
                      f"LD_PRELOAD={t.LIBCUDA} towline run -- {old}")
        # What it says does mend it.
        preload = re.match(r"LD_PRELOAD=(\S+)", found["mend"]).group(1)
        finds(visit("-s", server.address(), "--", old, LD_PRELOAD=preload), "ok", "libcuda", "Towline's", None)
        # A RUNPATH is searched behind LD_LIBRARY_PATH: only without towline run it counts.
        new = compiled(folder, "new", f"-Wl,--enable-new-dtags,-rpath,{driver.parent}")
        report = visit("-s", server.address(), "--", new)
        finds(report, "ok", "libcuda", "Towline's", None)
        finds(report, "hint", "without", r"it gets .*/driver/libcuda\.so\.1, NVIDIA's driver 535\.104\.05 \(RUNPATH from file", "towline run")
        t.check(report["runs"], "a RUNPATH keeps the program from running")


@t.test(120)
def other_ways_to_another_driver():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        folder = pathlib.Path(base)
        program, driver = compiled(folder, "app"), other_driver(folder / "driver")
        report = visit("-s", server.address(), "--", program, LD_PRELOAD=str(driver))
        finds(report, "wrong", "libcuda", r"gets .*/driver/libcuda\.so\.1 .*because LD_PRELOAD names it", "unset LD_PRELOAD")
        for place, whose, level in (("stubs", "a stub of the CUDA toolkit", "warning"), ("compat", "cuda-compat", "hint"),
                                    ("wsl", "the driver of WSL", "hint")):
            there = other_driver(folder / place / "lib").parent
            shutil.move(there, folder / place / place)
            report = visit("-s", server.address(), "--", program, LD_LIBRARY_PATH=str(folder / place / place))
            finds(report, "ok", "libcuda", "Towline's", None)
            finds(report, level, "without", rf"/{place}/libcuda\.so\.1, .*{whose}.*LD_LIBRARY_PATH", "towline run -- ")


@t.test(120)
def programs_that_get_no_library_of_ours():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        folder = pathlib.Path(base)

        def seen(program, level, text, mend):
            finds(visit("-s", server.address(), "--", program), level, "program", text, mend)

        seen(compiled(folder, "static", "-static"), "wrong", "linked statically", "without -static")
        seen(compiled(folder, "pie", "-static-pie"), "wrong", "linked statically", "without -static")
        seen(compiled(folder, "musl", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"), "wrong", "linked to musl", "Debian")
        seen(compiled(folder, "lost", "-Wl,--dynamic-linker=/nonexistent/ld.so"), "wrong", "wants the loader /nonexistent/ld.so", "C library")
        loader = folder / "ld-own.so"
        shutil.copy("/bin/true", loader)
        seen(compiled(folder, "own", f"-Wl,--dynamic-linker={loader}"), "warning", "a loader of its own", "LD_PRELOAD=")
        foreign = bytearray(compiled(folder, "app").read_bytes())
        foreign[18:20] = struct.pack("<H", 8)  # MIPS
        (folder / "foreign").write_bytes(foreign)
        (folder / "foreign").chmod(0o755)
        seen(folder / "foreign", "wrong", "another kind of processor", "64-bit")
        # Cut at each place, it is none, and does no harm.
        whole = (folder / "app").read_bytes()
        for size in (0, 3, 20, 63, 64, 100, 400, 800):
            (folder / "cut").write_bytes(whole[:size])
            (folder / "cut").chmod(0o755)
            report = visit("-s", server.address(), "--", folder / "cut")
            t.check(not report["runs"], f"a program that was cut after {size} bytes runs: {report}")
        seen(folder / "nothing", "wrong", "there is no such file", "name a program")
        seen("no-such-program-anywhere", "wrong", "in none of the folders of PATH", "name a program")
        (folder / "data").write_text("hello\n")
        seen(folder / "data", "wrong", "not an executable file", "chmod +x")


@t.test()
def a_setuid_program():
    if os.getuid() != 0:
        raise t.Skip("only root can make a program that gets another user's rights")
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        program = compiled(pathlib.Path(base), "app")
        os.chown(program, 65534, 65534)
        program.chmod(0o755 | stat.S_ISUID)
        finds(visit("-s", server.address(), "--", program), "wrong", "program", "gets rights by its file", f"cp {program} .")


@t.test()
def a_script_is_followed():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        script = pathlib.Path(base) / "train"
        for first, ends in (("#!/usr/bin/env -S sh -e\n", "ok"), (f"#!{t.TOWLINE} --x\n", "ok"), ("#!/nonexistent/python9\n", "wrong")):
            script.write_text(first)
            script.chmod(0o755)
            report = visit("-s", server.address(), "--", script)
            finds(report, "hint", "script", "is a script of", None)
            if ends == "ok":
                finds(report, "ok", "libcuda", "Towline's", None)
            else:
                finds(report, "wrong", "program", "/nonexistent/python9 .*the script that was named wants it", "name a program")
        script.write_text(f"#!{script}\n")  # a circle
        t.check(not visit("-s", server.address(), "--", script)["runs"], "a script that is its own interpreter runs")


@t.test(120)
def libraries_that_are_missing():
    with t.Server() as server, tempfile.TemporaryDirectory(prefix="tow") as base:
        folder = pathlib.Path(base)
        names = {"cublas": "libcublas.so.12", "nvcuvid": "libnvcuvid.so.1", "mine": "libmine.so.3"}
        for stem, name in names.items():
            compiled(folder, f"lib{stem}.so", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-Wl,--no-as-needed", source="")
        program = compiled(folder, "app", f"-L{folder}", "-Wl,--no-as-needed", *(f"-l{stem}" for stem in names))
        report = visit("-s", server.address(), "--", program)
        finds(report, "wrong", "library", r"wants NVIDIA's libcublas\.so\.12", "LD_LIBRARY_PATH=")
        finds(report, "wrong", "library", r"libnvcuvid\.so\.1, a part of NVIDIA's driver", "on the GPU's machine")
        finds(report, "wrong", "library", r"wants libmine\.so\.3, which is not found", "LD_LIBRARY_PATH=")
        for stem, name in names.items():
            (folder / f"lib{stem}.so").rename(folder / name)
        report = visit("-s", server.address(), "--", program, LD_LIBRARY_PATH=str(folder))
        finds(report, "ok", "library", "all libraries", None)
        # A library may be named: a module of Python's, for example.
        finds(visit("-s", server.address(), "--", folder / "libmine.so.3"), "ok", "libcuda", "Towline's", None)
        alone = compiled(folder, "alone.so", "-shared", "-fPIC", "-nostdlib", source="")
        finds(visit("-s", server.address(), "--", alone), "hint", "libcuda", "names no library", "towline doctor -- PROGRAM")


# ---- settings ----

@t.test(120, trees=BOTH)
def settings_that_hide_or_slow():
    with t.Server() as server:
        def seen(level, check, text, mend, **variables):
            finds(visit("-s", server.address(), **variables), level, check, text, mend)

        seen("wrong", "variable", "TOWLINE_LANES=many is not understood", "unset TOWLINE_LANES", TOWLINE_LANES="many")
        seen("warning", "variable", "TOWLINE_SEVER; did you mean", "the variable's name", TOWLINE_SEVER="x")
        seen("wrong", "visible", "CUDA_VISIBLE_DEVICES=-1 hides all GPUs", "unset CUDA_VISIBLE_DEVICES", CUDA_VISIBLE_DEVICES="-1")
        seen("wrong", "trial", "CUDA_ERROR_NO_DEVICE", "TOWLINE_LOG=info", CUDA_VISIBLE_DEVICES="7")
        seen("warning", "slow", "CUDA_LAUNCH_BLOCKING=1 makes programs slow", "unset CUDA_LAUNCH_BLOCKING", CUDA_LAUNCH_BLOCKING="1")
        seen("warning", "slow", "TOWLINE_SYNC=1", "unset TOWLINE_SYNC", TOWLINE_SYNC="1")
        seen("warning", "slow", "TOWLINE_LANES=1", "unset TOWLINE_LANES", TOWLINE_LANES="1")


@t.test(120, trees=BOTH)
def a_config_file_with_a_mistake():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        config = pathlib.Path(base) / "towline" / "towline.conf"
        config.parent.mkdir()
        config.write_text("sever = gpuhost\n")
        report = visit(XDG_CONFIG_HOME=base, XDG_RUNTIME_DIR=base)
        finds(report, "wrong", "choice", r"towline\.conf:1: .*write server = HOST:4837", "doctor -s")
        finds(visit("-s", "tcp://host:port"), "wrong", "choice", "is not an address", "doctor -s")


# ---- the server ----

@t.test(180, trees=BOTH)
def servers_that_are_not_there():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        finds(visit("-s", f"{base}/sock"), "wrong", "reach", "does not exist", f"towlined -l unix://{base}/sock")
        with t.Server() as server:
            port = server.port()
        finds(visit("-s", f"127.0.0.1:{port}"), "wrong", "reach", "refused the connection", f"towlined -l tcp://0.0.0.0:{port} --require-token")
        with web.Web() as server:
            finds(visit("-s", f"127.0.0.1:{server.port_of_page}"), "wrong", "reach", "answers with HTTP", "ss -ltnp on 127.0.0.1")
        finds(visit("-s", "gpuhost.invalid"), "wrong", "reach", "cannot resolve the host name", "ping gpuhost.invalid")


@t.test(180, trees=BOTH)
def servers_that_want_a_token():
    with tempfile.TemporaryDirectory(prefix="tow") as base, \
            t.Server("--require-token", f"--token-file={base}/tokens") as server:
        made = t.run([t.TOWLINED, "token", "create", "--user", "ann", "--class", "night", f"--token-file={base}/tokens"])
        t.equal(made.returncode, 0, made.stderr)
        tcp, own = server.address("tcp"), pathlib.Path(base) / "towline" / "token"
        finds(visit("-s", tcp, XDG_CONFIG_HOME=base), "wrong", "reach", "needs a token", "towlined token create --user NAME")
        own.parent.mkdir()
        own.write_text(made.stdout)
        own.chmod(0o644)
        finds(visit("-s", tcp, XDG_CONFIG_HOME=base), "wrong", "reach", "others can read the token", f"chmod 600 {own}")
        own.chmod(0o600)
        report = visit("-s", tcp, XDG_CONFIG_HOME=base)
        finds(report, "ok", "identity", r"it takes you for ann \(token\), of class night", None)
        t.check(report["runs"], "with a token it does not run")
        wrong = re.sub(r"[0-9a-f]{4}\s*$", "0000", made.stdout.strip())
        finds(visit("-s", tcp, XDG_CONFIG_HOME=base, TOWLINE_TOKEN=wrong), "wrong", "reach", " refuses: ", "its log says")


@t.test(180, trees=BOTH)
def a_server_whose_key_is_not_known():
    t.need_tls()
    with t.TlsServer() as server:
        address = server.address("tls")
        finds(visit("-s", address, HOME="/nonexistent", XDG_CONFIG_HOME="/nonexistent"), "wrong", "reach", "is not known here",
              f"towline trust {address}")
        report = visit("-s", address, **server.settings)
        finds(report, "warning", "way", "is this machine, and tls is slower", "/run/towline.sock")
        t.check(report["runs"], "with its key known it does not run")


@t.test(180, trees=BOTH)
def servers_that_take_nobody_else():
    with t.Server("--max-sessions=4", "--sessions-per-peer=1") as server, t.held(server, "leave") as client:
        finds(visit("-s", server.address()), "wrong", "room", "as many as one peer may have", "towline end SESSION")
        client.communicate(timeout=60 * t.SLOW)
    with t.Server("--max-sessions=1") as server, t.held(server, "leave") as client:
        finds(visit("-s", server.address()), "wrong", "room", "serves 1 programs, as many as it may", "towline end SESSION")
        done = t.run([t.TOWLINED, "drain", f"--listen={server.address()}"])
        t.equal(done.returncode, 0, done.stderr)
        finds(visit("-s", server.address()), "wrong", "room", "is being drained", "another server with -s")
        client.communicate(timeout=60 * t.SLOW)
        t.equal(server.process.wait(timeout=60 * t.SLOW), 0, "the exit code")


# ---- the way ----

@t.test(180, trees=BOTH)
def ways_that_could_be_faster():
    with t.Server() as server:
        report = visit("-s", server.address("tcp"))
        finds(report, "warning", "way", "is this machine, and tcp is slower than its socket", "towline run -s /run/towline.sock")
        t.check(report["runs"], "a warning counts")
        finds(visit("-s", server.address(), TOWLINE_TRANSPORT="unix"), "warning", "way", "TOWLINE_TRANSPORT=unix forbids shared memory",
              "unset TOWLINE_TRANSPORT")
        finds(visit("-s", f"hook:delay=5ms:{server.address()}"), "warning", "far", "the server is far", "towline bench")


@t.test(60)
def every_address_of_this_machine_is_this_machine():
    with t.Server(listen=["tcp://127.0.0.3:0"]) as server:
        finds(visit("-s", server.address("tcp")), "warning", "way", "127.0.0.3:[0-9]+ is this machine", "/run/towline.sock")


# ---- this system ----

@t.test()
def a_system_that_forbids_userfaultfd():
    number = {"x86_64": (323, 0xC000003E), "aarch64": (282, 0xC00000B7)}[os.uname().machine]
    with t.Server() as server:
        # As in a container: this system call answers EPERM. Root may use /dev/userfaultfd all the same.
        filter_ = f"""
import ctypes, os, struct, sys
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
if os.access("/dev/userfaultfd", os.R_OK | os.W_OK) or not os.access(sys.argv[1], os.X_OK):
    sys.exit(77)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, {number[0]}), (6, 0, 0, 0x50001), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""
        prefix = ["/usr/bin/python3", "-c", filter_]
        if t.run([*prefix, t.TOWLINE, "version"]).returncode == 77:
            raise t.Skip("/dev/userfaultfd is open to all here, or nobody but root may look into this folder")
        report = visit("-s", server.address("tcp"), prefix=prefix)
        finds(report, "warning", "userfaultfd", "compared at every launch.*not permitted", "seccomp")
        t.check(report["runs"], "a warning counts")


@t.test(60)
def a_dev_shm_as_small_as_in_containers():
    flags = ["--mount"] if os.getuid() == 0 else ["--mount", "--map-root-user"]
    mounted = ["unshare", *flags, "sh", "-c", 'mount -t tmpfs -o size=64M tmpfs /dev/shm && exec "$@"', "sh"]
    with t.Server() as server:
        files = os.statvfs("/dev/shm")
        large = files.f_blocks * files.f_frsize >= 1 << 30
        finds(visit("-s", server.address()), "ok" if large else "warning", "shm", "^/dev/shm has ", None if large else "remount")
        if t.run([*mounted, "true"]).returncode != 0:
            raise t.Skip("nobody may mount another /dev/shm here")
        finds(visit("-s", server.address("tcp"), prefix=mounted), "warning", "shm", "^/dev/shm has 64.0 MiB: PyTorch's DataLoader",
              "--shm-size=8g")


@t.test()
def what_jax_looks_for():
    with t.Server() as server:
        report = visit("-s", server.address())
        nodes = [path for path in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg") if os.path.exists(path)]
        if nodes:
            finds(report, "ok", "jax", f"{nodes[0]} exists", None)
        else:
            finds(report, "hint", "jax", "takes the CPU", "sudo touch /dev/nvidiactl")
        with tempfile.TemporaryDirectory(prefix="tow") as base:
            program = compiled(pathlib.Path(base), "app")
            limited = visit("-s", server.address(), "--", program, prefix=["sh", "-c", 'ulimit -v 60000000; exec "$@"', "sh"])
            finds(limited, "warning", "addresses", "may use 57.2 GiB of addresses", "ulimit -v unlimited")


if __name__ == "__main__":
    t.main()
