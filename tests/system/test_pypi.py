#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numba-CUDA, CuPy, pynvml and JAX as PyPI has them, unmodified, on the software GPU. None knows about Towline.

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
PACKAGES = ["numba==0.68.1", "numba-cuda==0.30.4", "cupy-cuda13x==14.2.0", "nvidia-ml-py==13.615.71"]
JAX_PACKAGES = ["jax==0.10.2", "jaxlib==0.10.2"]
# Their dependencies are NVIDIA's libraries, which the toolkit has.
JAX_PLUGINS = ["--no-deps", "jax-cuda13-plugin==0.10.2", "jax-cuda13-pjrt==0.10.2"]
FOLDER = t.BUILD / "pypi"
SCRIPTS = t.ROOT / "tests" / "system" / "pypi"
INSTALL_LIMIT = 300  # seconds; 30 with a filled cache of pip's
UNREACHABLE = re.compile(r"NewConnectionError|ConnectTimeout|ReadTimeout|ConnectionReset|ProxyError|SSLError|"
                         r"Name or service not known|Temporary failure|from versions: none|ConnectionError|ProtocolError|"
                         r"IncompleteRead|RemoteDisconnected|Connection broken|timed out|HTTP error (?:5\d\d|408|429)|5\d\d \w+ Error")


def python(venv):
    return FOLDER / venv / "bin" / "python"


def give_up(venv, reason):
    """The next test need not wait again."""
    shutil.rmtree(FOLDER / venv, ignore_errors=True)
    (FOLDER / f"{venv}.failed").write_text(reason)
    raise t.Skip(reason)


def install(venv="venv", *groups):
    """Makes FOLDER/`venv` with groups of packages; each is one call of pip."""
    groups = groups or (PACKAGES,)
    wanted = "\n".join(" ".join(group) for group in groups)
    if sys.version_info < (3, 10):
        raise t.Skip("CuPy wants Python 3.10")
    if not t.find_nvcc():
        raise t.Skip("no CUDA toolkit: Numba, CuPy and JAX take NVVM, NVRTC, cuRAND ... from it")
    with t.locked(FOLDER / "lock"):
        done, failed = FOLDER / f"{venv}.installed", FOLDER / f"{venv}.failed"
        if done.exists() and done.read_text() == wanted:
            return
        if failed.exists() and time.time() - failed.stat().st_mtime < 600:
            raise t.Skip(failed.read_text())
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER / venv)], capture_output=True, text=True)
        if made.returncode != 0:
            give_up(venv, "python3 -m venv does not work here (apt install python3-venv)")
        for group in groups:
            command = [python(venv), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                       "--only-binary=:all:", "--timeout=10", "--retries=1", *group]
            try:
                got = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT)
            except subprocess.TimeoutExpired:
                give_up(venv, f"pip has not installed {' '.join(group)} within {INSTALL_LIMIT} s")
            if got.returncode != 0 and UNREACHABLE.search(got.stderr):
                give_up(venv, "pip cannot reach the package index")
            t.check(got.returncode == 0, f"pip:\n{got.stdout}{got.stderr}")
        done.write_text(wanted)


def run_script(server, name, *operations):
    env = {"CUPY_CACHE_DIR": str(FOLDER / "cupy-cache"), "CUDA_CACHE_PATH": str(FOLDER / "cuda-cache"),
           "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"}
    done = t.towline_run(server.address(), [python("venv"), SCRIPTS / name, *operations], 300, env=env)
    t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
            f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.split()


@t.test(uses="pypi", matrix="pypi", limit=2 * INSTALL_LIMIT + 330)
def numba():
    install()
    with t.Server() as server:
        t.equal(len(run_script(server, "numba_ops.py")), 9, "the number of lines of numba_ops.py")


@t.test(uses="pypi", matrix="pypi", limit=2 * INSTALL_LIMIT + 630)
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


@t.test(uses="pypi", matrix="pypi", limit=2 * INSTALL_LIMIT + 330)
def cupy_linear_algebra():
    """A capability that cuBLAS has no machine code for makes it hand over PTX."""
    install()
    with t.Server("--soft-capability=13.0") as server:
        run_script(server, "cupy_ops.py", "linear_algebra")


@t.test(uses="pypi", matrix="pypi", limit=2 * INSTALL_LIMIT + 330)
def pynvml():
    install()
    with t.Server() as server:
        t.equal(len(run_script(server, "nvml_ops.py")), 6, "the number of lines of nvml_ops.py")


@t.test(uses="pypi", matrix="pypi", limit=3 * INSTALL_LIMIT + 330)
def jax():
    """Over tcp, where page-locked memory is not shared: JAX stages its copies in such memory."""
    if sys.version_info < (3, 11):
        raise t.Skip("JAX wants Python 3.11")
    install("jax", JAX_PACKAGES, JAX_PLUGINS)
    toolkit = pathlib.Path(t.find_nvcc()).resolve().parent.parent
    missing = [name for name in ("libcudnn.so.9", "libcusolver.so.12", "libcupti.so.13") if not (toolkit / "lib64" / name).exists()]
    if missing or not (toolkit / "nvvm" / "libdevice").exists():
        raise t.Skip(f"JAX wants of the CUDA toolkit: {' '.join(missing)} nvvm/libdevice")
    # What XLA takes for the toolkit: its ptxas leaves PTX as it is.
    cuda = FOLDER / "cuda"
    shutil.rmtree(cuda, ignore_errors=True)
    (cuda / "bin").mkdir(parents=True)
    (cuda / "nvvm").mkdir()
    shutil.copy(SCRIPTS / "ptxas", cuda / "bin")
    (cuda / "bin" / "nvlink").symlink_to(toolkit / "bin" / "nvlink")
    (cuda / "nvvm" / "libdevice").symlink_to(toolkit / "nvvm" / "libdevice")
    env = {"JAX_PLATFORMS": "cuda,cpu", "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TOWLINE_LANES": "4",
           "XLA_FLAGS": f"--xla_gpu_autotune_level=0 --xla_gpu_cuda_data_dir={cuda}",
           "LD_LIBRARY_PATH": f"{toolkit / 'lib64'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    with t.Server() as server:
        done = t.towline_run(server.address("tcp"), [python("jax"), SCRIPTS / "jax_ops.py"], 300, env=env)
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
                f"jax_ops.py: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")
        t.check("failed with error" not in server.log(), server.log())
        t.equal(len(done.stdout.split()), 9, "the number of lines of jax_ops.py")


if __name__ == "__main__":
    t.main()
