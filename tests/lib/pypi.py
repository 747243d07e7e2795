# SPDX-License-Identifier: Apache-2.0
"""A Python with packages of PyPI, for tests that need one: installed once into a folder of the build.

A package index that cannot be reached, or is too slow, skips the tests.
"""

import os
import re
import shutil
import subprocess
import sys
import time

import towtest as t

FOLDER = t.BUILD / "pypi"
PYTHON = FOLDER / "venv" / "bin" / "python"
INSTALL_LIMIT = 300  # seconds for each call of pip; 60 with a filled cache of pip's

# docs/compatibility.md says what was run with these. One environment has all: several would take a minute more. JAX comes
# into it when a test wants it.
PACKAGES = ["numba==0.68.1", "numba-cuda==0.30.4", "cupy-cuda13x==14.2.0", "nvidia-ml-py==13.615.71",
            "nbclient==0.10.2", "ipykernel==6.30.1", "pytest==8.4.2"]
JAX_PACKAGES = [*PACKAGES, "jax==0.10.2", "jaxlib==0.10.2"]  # whose dependencies are to suit the others
# Their dependencies are NVIDIA's libraries, which the toolkit has.
JAX_PLUGINS = ["--no-deps", "jax-cuda13-plugin==0.10.2", "jax-cuda13-pjrt==0.10.2"]

HAS_JAX = sys.version_info >= (3, 11)  # which it wants
UNREACHABLE = re.compile(r"NewConnectionError|ConnectTimeout|ReadTimeout|ConnectionReset|ProxyError|SSLError|"
                         r"Name or service not known|Temporary failure|from versions: none|ConnectionError|ProtocolError|"
                         r"IncompleteRead|RemoteDisconnected|Connection broken|timed out|HTTP error (?:5\d\d|408|429)|5\d\d \w+ Error")


def give_up(reason):
    """The next test need not wait again."""
    shutil.rmtree(FOLDER / "venv", ignore_errors=True)
    (FOLDER / "installed").unlink(missing_ok=True)
    (FOLDER / "failed").write_text(reason)
    raise t.Skip(reason)


def install(jax=False):
    """The Python that has them all; JAX, which is half of it, where it is asked for."""
    if sys.version_info < (3, 10):
        raise t.Skip("CuPy wants Python 3.10")
    groups = (PACKAGES, JAX_PACKAGES, JAX_PLUGINS) if jax else (PACKAGES,)
    with t.locked(FOLDER / "lock"):
        done, failed = FOLDER / "installed", FOLDER / "failed"
        had = done.read_text().splitlines() if done.exists() else []
        groups = [group for group in groups if " ".join(group) not in had]
        if not groups:
            return PYTHON
        if failed.exists() and time.time() - failed.stat().st_mtime < 600:
            raise t.Skip(failed.read_text())
        if PACKAGES in groups:
            had = []
            made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER / "venv")], capture_output=True, text=True)
            if made.returncode != 0:
                give_up("python3 -m venv does not work here (apt install python3-venv)")
        for group in groups:
            # Of their thousands of files few are ever used, and these Python compiles itself.
            command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
                       "--only-binary=:all:", "--timeout=10", "--retries=1", *group]
            try:
                got = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT)
            except subprocess.TimeoutExpired:
                give_up(f"pip has not installed {' '.join(group)} within {INSTALL_LIMIT} s")
            if got.returncode != 0 and UNREACHABLE.search(got.stderr):
                give_up("pip cannot reach the package index")
            t.check(got.returncode == 0, f"pip:\n{got.stdout}{got.stderr}")
            had.append(" ".join(group))
            done.write_text("\n".join(had))
    return PYTHON
