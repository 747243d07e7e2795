#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numba-CUDA, CuPy, pynvml and JAX as PyPI has them, unmodified, on the software GPU. None knows about Towline."""

import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import pypi  # noqa: E402
import towtest as t  # noqa: E402

t.same_for_all_users()

SCRIPTS = t.ROOT / "tests" / "system" / "pypi"
LIMIT = 2 * pypi.INSTALL_LIMIT + 330


def install(jax=False):
    if not t.find_nvcc():
        raise t.Skip("no CUDA toolkit: Numba, CuPy and JAX take NVVM, NVRTC, cuRAND ... from it")
    return pypi.install(jax)


def run_script(server, name, *operations):
    env = {"CUPY_CACHE_DIR": str(pypi.FOLDER / "cupy-cache"), "CUDA_CACHE_PATH": str(pypi.FOLDER / "cuda-cache"),
           "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0", "NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0"}
    done = t.towline_run(server.address(), [pypi.PYTHON, SCRIPTS / name, *operations], 300, env=env)
    t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
            f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.split()


def numba():
    install()
    with t.Server() as server:
        t.equal(len(run_script(server, "numba_ops.py")), 9, "the number of lines of numba_ops.py")


@t.test(uses="pypi", matrix="pypi", limit=LIMIT + 300)
def cupy():
    install()
    shutil.rmtree(pypi.FOLDER / "cupy-cache", ignore_errors=True)
    with t.Server() as server:
        # NVRTC makes their kernels anew each time: seconds of a processor for each operation.
        operations = sorted({"element_wise", *t.drawn(("reductions", "raw_kernel", "reduction_kernel", "random", "sort"), 1)})
        t.equal(run_script(server, "cupy_ops.py", *operations), [*operations, "OK"], "the lines of cupy_ops.py")
        # A second process takes the cubins from CuPy's folder; which PTX they came from must be known to it.
        kept = sorted(os.listdir(pypi.FOLDER / "cupy-cache"))
        t.check(any(name.endswith(".cubin") for name in kept), f"CuPy has kept no cubins: {kept}")
        run_script(server, "cupy_ops.py", "element_wise")
        t.equal(sorted(os.listdir(pypi.FOLDER / "cupy-cache")), kept, "what CuPy keeps, after a run with nothing new")


def cupy_linear_algebra():
    """A capability that cuBLAS has no machine code for makes it hand over PTX."""
    install()
    with t.Server("--soft-capability=13.0") as server:
        run_script(server, "cupy_ops.py", "linear_algebra")


def pynvml():
    install()
    with t.Server() as server:
        t.equal(len(run_script(server, "nvml_ops.py")), 6, "the number of lines of nvml_ops.py")


def jax():
    """Over tcp, where page-locked memory is not shared: JAX stages its copies in such memory."""
    if not pypi.HAS_JAX:
        raise t.Skip("JAX wants Python 3.11")
    install(jax=True)
    toolkit = pathlib.Path(t.find_nvcc()).resolve().parent.parent
    missing = [name for name in ("libcudnn.so.9", "libcusolver.so.12", "libcupti.so.13") if not (toolkit / "lib64" / name).exists()]
    if missing or not (toolkit / "nvvm" / "libdevice").exists():
        raise t.Skip(f"JAX wants of the CUDA toolkit: {' '.join(missing)} nvvm/libdevice")
    # What XLA takes for the toolkit: its ptxas leaves PTX as it is.
    cuda = pypi.FOLDER / "cuda"
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
        done = t.towline_run(server.address("tcp"), [pypi.PYTHON, SCRIPTS / "jax_ops.py"], 300, env=env)
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"),
                f"jax_ops.py: exit code {done.returncode}\n{done.stdout}{done.stderr}\n{server.log()[-2000:]}")
        t.check("failed with error" not in server.log(), server.log())
        t.equal(len(done.stdout.split()), 9, "the number of lines of jax_ops.py")


for _test in t.drawn(("numba", "cupy_linear_algebra", "pynvml", "jax"), 2):
    t.test(uses="pypi", matrix="pypi", limit=LIMIT, name=_test)(globals()[_test])


if __name__ == "__main__":
    t.main()
