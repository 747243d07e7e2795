# SPDX-License-Identifier: Apache-2.0
"""GPUs that are somewhere else, for programs that run already: notebooks above all.

    import towline
    towline.use("tls://gpuhost:4838")     # before the first CUDA call of this process

A program that is yet to be started needs none of this: `towline run -s gpuhost -- python3 train.py`.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

__all__ = ["Error", "DriverLoaded", "NoServer", "use", "version"]

BIN = pathlib.Path(__file__).resolve().parent / "bin"
LIBRARIES = pathlib.Path(__file__).resolve().parent / "lib" / "towline"

# What towline.use() holds for the life of this process: the libraries, and whoever keeps the way to the server open.
_used = {}


# What towline run adds where a program was to be started.
_NOT_STARTED = " (the program was not started; --no-check starts it without asking)"


class Error(RuntimeError):
    """What towline.use() cannot do; the sentence says why."""


class DriverLoaded(Error):
    """This process has a libcuda.so.1 already, and keeps it."""


class NoServer(Error):
    """A server cannot be used, or none can be started."""


def version():
    """Towline's version."""
    return subprocess.run([str(BIN / "towline"), "version"], capture_output=True, text=True, check=True).stdout.split()[1].rstrip(",")


class _Loaded(ctypes.Structure):
    """The first members of struct dl_phdr_info: all that is read."""
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


def _libraries():
    """The files of all shared libraries that this process has loaded, whoever loaded them."""
    found = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)
    def take(one, _size, _user):
        found.append(os.fsdecode(one.contents.name or b""))
        return 0

    try:
        ctypes.CDLL(None).dl_iterate_phdr(take, None)
    except (OSError, AttributeError) as error:
        raise Error("the libraries of this process cannot be listed: Towline needs Linux with glibc") from error
    return found


def _loaded(stem):
    """The file of that library, if this process has it."""
    return next((path for path in _libraries() if os.path.basename(path).startswith(f"{stem}.so")), None)


def _numba_has_given_up():
    """Whether Numba was imported before: it looks for a driver then, and keeps to what it found."""
    for name in ("numba.cuda.cudadrv.driver", "numba_cuda.numba.cuda.cudadrv.driver"):
        driver = getattr(sys.modules.get(name), "driver", None)
        if getattr(driver, "initialization_error", None):
            return True
    return False


def _open_way(server, device):
    """The address that programs of this process are to use, as `towline run` finds it, and who keeps the way to it open."""
    command = [str(BIN / "towline"), "run", "-q"]
    command += ["-s", server] if server is not None else []
    command += ["--device", device] if device is not None else []
    # Lives as long as somebody has the other end of its input: this process, and children that it forks. A number, not a
    # file: Python closes files while it ends, and what ends after them may still use the GPU.
    command += ["--", "/bin/sh", "-c", 'echo "$TOWLINE_SERVER"; exec cat >/dev/null']
    its, ours = os.pipe()
    with tempfile.TemporaryFile("w+", errors="replace") as said:  # a private server goes on to write there
        holder = subprocess.Popen(command, stdin=its, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True)
        os.close(its)
        with holder.stdout:
            address = holder.stdout.readline().strip()
        if not address:
            os.close(ours)
            holder.wait()
            said.seek(0)
            raise NoServer(said.read().strip().removeprefix("towline: ").replace(_NOT_STARTED, "")
                           or "the server cannot be used, and towline run does not say why")
    return address, holder


def _load(name):
    try:
        return ctypes.CDLL(str(LIBRARIES / name), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise Error(f"{name} of Towline cannot be loaded: {error}") from error


def use(server=None, *, device=None):
    """From now on CUDA of this process is that of a Towline server; call it before the first use of CUDA.

    `server` is an address as `towline run -s` takes it: "gpuhost", "tls://gpuhost:4838", "ssh://gpuhost". Without one
    the variable TOWLINE_SERVER, the config files and this machine's own socket are looked at, and if there is none a
    private server is started for the life of this process, on this machine's GPU or on the software GPU.
    `device`: a private server with that device, "soft" or "cuda".

    Returns the server's address. Raises DriverLoaded if this process has another libcuda.so.1 already (restart the
    kernel, and call this first), NoServer if the server does not answer. PyTorch and CuPy may be
    imported before, as long as they have not looked for a GPU. Numba looks when it is imported.
    """
    if server is not None and device is not None:
        raise Error("the server decides on its device; name either a server or a device")
    wanted = (server, device)
    if any("ld-musl" in path for path in _libraries()):
        raise Error("this Python is linked to musl, as in Alpine, and Towline's libcuda.so.1 to glibc; take the python image of Debian")
    loaded = _loaded("libcuda")
    if loaded is not None:
        if _used.get("wanted") == wanted and _used.get("process") == os.getpid():
            return _used["address"]
        if "wanted" in _used:
            raise DriverLoaded(f"this process uses {_used['address']} already; restart the kernel to use another server")
        raise DriverLoaded(f"this process has loaded {loaded} already, and keeps it; restart the kernel, and call towline.use() before "
                           "anything looks for a GPU" + ("" if os.path.realpath(loaded) != os.path.realpath(LIBRARIES / "libcuda.so.1")
                                                         else " (or leave it out: towline run has started this program)"))
    if _numba_has_given_up():
        raise DriverLoaded("Numba was imported before, and has found no driver; restart the kernel, and call towline.use() before "
                           "Numba is imported")
    address, holder = _open_way(server, device)
    os.environ["TOWLINE_SERVER"] = address
    # Children of this process, and those who look for the driver by themselves: Triton, Numba.
    before = os.environ.get("LD_LIBRARY_PATH")
    os.environ["LD_LIBRARY_PATH"] = f"{LIBRARIES}:{before}" if before else str(LIBRARIES)
    os.environ["TRITON_LIBCUDA_PATH"] = str(LIBRARIES)
    os.environ["NUMBA_CUDA_DRIVER"] = str(LIBRARIES / "libcuda.so.1")
    # Whoever opens "libcuda.so.1" from now on gets what has that soname here.
    _used.update(wanted=wanted, address=address, holder=holder, process=os.getpid(), driver=_load("libcuda.so.1"))
    if _loaded("libnvidia-ml") is None:
        _used["nvml"] = _load("libnvidia-ml.so.1")
    return address
