#!/usr/bin/env python3
"""Numba-CUDA and CuPy as PyPI has them, unmodified, on the software GPU. Neither knows about Towline.

They are installed once into a folder of the build; a package index that cannot be reached, or is too slow, skips the tests.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

# docs/compatibility.md says what was run with these.
PACKAGES = ["numba==0.68.1", "numba-cuda==0.30.4", "cupy-cuda13x==14.2.0"]
FOLDER = t.BUILD / "pypi"
PYTHON = FOLDER / "venv" / "bin" / "python"
SCRIPTS = t.ROOT / "tests" / "system" / "pypi"
INSTALL_LIMIT = 300  # seconds; 30 with a filled cache of pip's
UNREACHABLE = re.compile(r"NewConnectionError|ConnectTimeout|ReadTimeout|ConnectionReset|ProxyError|SSLError|"
                         r"Name or service not known|Temporary failure|from versions: none")


def give_up(reason):
    """The next test need not wait again."""
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    (FOLDER / "failed").write_text(reason)
    raise t.Skip(reason)


def install():
    if sys.version_info < (3, 10):
        raise t.Skip("CuPy wants Python 3.10")
    if not t.find_nvcc():
        raise t.Skip("no CUDA toolkit: Numba and CuPy take NVVM, NVRTC and cuRAND from it")
    with t.locked(FOLDER / "lock"):
        done, failed = FOLDER / "installed", FOLDER / "failed"
        if done.exists() and done.read_text() == "\n".join(PACKAGES):
            return
        if failed.exists() and time.time() - failed.stat().st_mtime < 600:
            raise t.Skip(failed.read_text())
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER / "venv")], capture_output=True, text=True)
        if made.returncode != 0:
            give_up("python3 -m venv does not work here (apt install python3-venv)")
        command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
                   "--timeout=10", "--retries=1", *PACKAGES]
        try:
            got = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT)
        except subprocess.TimeoutExpired:
            give_up(f"pip has not installed {' '.join(PACKAGES)} within {INSTALL_LIMIT} s")
        if got.returncode != 0 and UNREACHABLE.search(got.stderr):
            give_up("pip cannot reach the package index")
        t.check(got.returncode == 0, f"pip:\n{got.stdout}{got.stderr}")
        done.write_text("\n".join(PACKAGES))


def run_script(server, name, *operations):
    env = {"CUPY_CACHE_DIR": str(FOLDER / "cupy-cache"), "CUDA_CACHE_PATH": str(FOLDER / "cuda-cache"),
           "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"}
    done = t.towline_run(server.address(), [PYTHON, SCRIPTS / name, *operations], 300, env=env)
    t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
            f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.split()


@t.test(limit=2 * INSTALL_LIMIT + 330)
def numba():
    install()
    with t.Server() as server:
        t.equal(len(run_script(server, "numba_ops.py")), 9, "the number of lines of numba_ops.py")


@t.test(limit=2 * INSTALL_LIMIT + 630)
def cupy():
    install()
    shutil.rmtree(FOLDER / "cupy-cache", ignore_errors=True)
    with t.Server() as server:
        t.equal(len(run_script(server, "cupy_ops.py")), 7, "the number of lines of cupy_ops.py")
        # A second process takes the cubins from CuPy's folder; which PTX they came from must be known to it.
        kept = sorted(os.listdir(FOLDER / "cupy-cache"))
        t.check(any(name.endswith(".cubin") for name in kept), f"CuPy has kept no cubins: {kept}")
        run_script(server, "cupy_ops.py", "element_wise", "raw_kernel", "reduction_kernel")
        t.equal(sorted(os.listdir(FOLDER / "cupy-cache")), kept, "what CuPy keeps, after a run with nothing new")


@t.test(limit=2 * INSTALL_LIMIT + 330)
def cupy_linear_algebra():
    """A capability that cuBLAS has no machine code for makes it hand over PTX."""
    install()
    with t.Server("--soft-capability=13.0") as server:
        run_script(server, "cupy_ops.py", "linear_algebra")


if __name__ == "__main__":
    t.main()
