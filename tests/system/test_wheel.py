#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python wheel: what is in it, its life in a fresh virtual environment of an ordinary user, towline.use(), and a notebook."""

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import pypi  # noqa: E402
import towtest as t  # noqa: E402

PYTHON = "/usr/bin/python3"  # every user may run it
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}

# An ordinary program: it opens the driver by its soname, as PyTorch, CuPy and JAX do, and computes something.
FILLS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def must(code):
    assert code == 0, code
must(cuda.cuInit(0))
context, memory, word = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
must(cuda.cuCtxSetCurrent(context))
must(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)))
must(cuda.cuMemsetD32_v2(memory, 12345, ctypes.c_size_t(1024)))
must(cuda.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(memory.value + 4092), ctypes.c_size_t(4)))
print("filled", word.value)
"""


def version():
    return re.search(r"version: '(.*)'", (t.ROOT / "meson.build").read_text()).group(1)


def make_wheel(folder):
    done = t.run([sys.executable, t.ROOT / "packaging" / "make-wheel", t.BUILD, version(), folder], 120)
    t.equal((done.returncode, done.stderr), (0, ""), "make-wheel")
    return pathlib.Path(done.stdout.strip())


def unpack(wheel, site):
    """The wheel's files in a folder, as pip lays them out."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        for entry in archive.infolist():
            (site / entry.filename).chmod(entry.external_attr >> 16)
    return site


class Home:
    """A folder of an ordinary user, with a virtual environment that has the wheel: by pip, or as pip does it, which takes a
    tenth of the time."""

    def __init__(self, pip):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tow"))
        self.venv = self.folder / "venv"
        self.with_pip = pip

    def __enter__(self):
        wheel = make_wheel(self.folder)
        self.folder.chmod(0o755)
        if NOBODY:
            os.chown(self.folder, 65534, 65534)
        made = self.run([PYTHON, "-m", "venv", *([] if self.with_pip else ["--without-pip"]), self.venv], 120)
        if made.returncode != 0:
            shutil.rmtree(self.folder)
            raise t.Skip(f"{PYTHON} -m venv does not work here (apt install python3-venv)")
        if self.with_pip:
            self.before = self.files()
            done = self.pip("install", "--no-index", wheel)
            t.equal(done.returncode, 0, f"pip install: {done.stderr}")
        else:
            unpack(wheel, next(self.venv.glob("lib/python3*/site-packages")))
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def files(self):
        return {str(path) for path in self.venv.rglob("*") if "__pycache__" not in path.parts}

    def run(self, command, timeout=60, **variables):
        env = t.clean_environment(HOME=str(self.folder), XDG_RUNTIME_DIR=str(self.folder), XDG_CONFIG_HOME=str(self.folder),
                                  XDG_CACHE_HOME=str(self.folder / "cache"), **variables)
        return t.run(command, timeout, env=env, cwd=self.folder, **NOBODY)

    def pip(self, *words):
        return self.run([self.venv / "bin" / "pip", "--disable-pip-version-check", "--quiet", *words], 120)

    def python(self, text, *words, **variables):
        return self.run([self.venv / "bin" / "python", "-c", text, *words], **variables)


@t.test(120)
def the_wheel_is_what_it_says():
    with tempfile.TemporaryDirectory(prefix="tow") as base:
        wheel = make_wheel(pathlib.Path(base) / "one")
        found = re.fullmatch(r"towline-(.+)-py3-none-manylinux_(\d+)_(\d+)_(.+)\.whl", wheel.name)
        t.check(found, f"the wheel is called {wheel.name}")
        t.equal((found.group(1), found.group(4)), (version(), os.uname().machine), "version and machine of its name")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(base)
            info = f"towline-{version()}.dist-info"
            rows = [row.split(",") for row in archive.read(f"{info}/RECORD").decode().splitlines()]
            t.equal([row[0] for row in rows], archive.namelist(), "the files of RECORD")
            for name, digest, size in rows[:-1]:
                content = archive.read(name)
                wanted = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                t.equal((digest, int(size)), (f"sha256={wanted}", len(content)), f"what RECORD says of {name}")
            t.check(f"Tag: py3-none-manylinux_{found.group(2)}_{found.group(3)}" in archive.read(f"{info}/WHEEL").decode(), "its tag")
            t.check(f"\nVersion: {version()}\n" in archive.read(f"{info}/METADATA").decode(), "its version")
        # No file asks for a newer C library than the name says; the client's libraries for none newer than 2.28.
        newest = (0, 0)
        for path in sorted((pathlib.Path(base) / "towline").rglob("*")):
            if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                asked = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", t.run(["readelf", "-VW", path]).stdout)
                most = max((int(major), int(minor)) for major, minor in asked)
                newest = max(newest, most)
                t.check(path.name not in ("libcuda.so.1", "libnvidia-ml.so.1") or most <= (2, 28), f"{path.name} asks for glibc {most}")
                # And for no library that is not in the wheel, but the C library's.
                for name in re.findall(r"\(NEEDED\).*\[(.*)\]", t.run(["readelf", "-dW", path]).stdout):
                    here = list((pathlib.Path(base) / "towline").rglob(name))
                    t.check(here or re.match(r"(libc|libm|libpthread|libdl)\.so|ld-linux", name), f"{path.name} needs {name}")
        t.equal(newest, (int(found.group(2)), int(found.group(3))), "the newest glibc that is asked for, and the name's")
        # The same build gives the same bytes.
        t.equal(make_wheel(pathlib.Path(base) / "two").read_bytes(), wheel.read_bytes(), "another wheel of this build")


@t.test(180)
def an_ordinary_user_installs_runs_and_removes_it():
    with Home(pip=True) as home:
        towline = home.venv / "bin" / "towline"
        t.equal(home.run([towline, "version"]).stdout.split()[1], f"{version()},", "towline version")
        t.equal(home.run([home.venv / "bin" / "towlined", "--version"]).returncode, 0, "towlined --version")
        done = home.run([towline, "run", "--device", "soft", "--", PYTHON, "-c", FILLS])
        t.equal((done.returncode, done.stdout), (0, "filled 12345\n"), f"towline run: {done.stderr}")
        done = home.run([towline, "doctor", "--json"])
        t.equal(done.returncode, 0, f"towline doctor: {done.stdout}")
        found = {finding["check"]: finding["text"] for finding in json.loads(done.stdout)["findings"]}
        t.check(str(home.venv) in found["installed"] and "trial" in found, found)
        # libzstd, which the server is linked to, is the wheel's: the system need have none.
        server = next(path for path in home.venv.rglob("towlined") if path.parent.parent.name == "towline")
        listed = home.run(["ldd", server]).stdout
        t.check("libzstd" not in listed or re.search(rf"libzstd\S+ => {re.escape(str(home.venv))}", listed), listed)
        done = home.pip("uninstall", "--yes", "towline")
        t.equal(done.returncode, 0, done.stderr)
        t.equal(home.files(), home.before, "what is left when it was uninstalled")


@t.test(180)
def use_finds_a_server_or_starts_one():
    use = "import towline; print(towline.use(*eval(__import__('sys').argv[1])))\n"
    with Home(pip=False) as home, t.Server() as server:
        done = home.python(use + FILLS, repr((server.address("tcp"),)))
        t.equal((done.returncode, done.stdout), (0, f"{server.address('tcp')}\nfilled 12345\n"), f"with a server: {done.stderr}")
        t.wait_until(lambda: " calls: its program left" in server.log(), 20, "the server says that a program left")
        done = home.python(use + FILLS, "()", TOWLINE_SERVER=server.address("tcp"))
        t.equal(done.stdout, f"{server.address('tcp')}\nfilled 12345\n", f"with TOWLINE_SERVER: {done.stderr}")
        # Alone: a private one, for this process's life.
        done = home.python(use + FILLS, "()")
        t.equal(done.returncode, 0, done.stderr)
        address, filled = done.stdout.splitlines()
        t.check(address.startswith(f"unix://{home.folder}/towline-") and filled == "filled 12345", done.stdout)
        t.wait_until(lambda: not list(home.folder.glob("towline-*/sock")), 20, "the private server's socket is gone")
        # What others look at, and children.
        done = home.python("import os, subprocess, sys, towline\ntowline.use(device='soft')\n"
                           "print(os.environ['TRITON_LIBCUDA_PATH'], os.environ['NUMBA_CUDA_DRIVER'])\nsys.stdout.flush()\n"
                           "subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)\n", FILLS)
        t.equal(done.returncode, 0, done.stderr)
        folder, driver, _, filled = done.stdout.split()
        t.check(os.path.isfile(f"{folder}/libcuda.so.1") and driver == f"{folder}/libcuda.so.1" and filled == "12345", done.stdout)
        # Twice is once.
        done = home.python("import towline\nprint(towline.use(device='soft') == towline.use(device='soft'))\n"
                           "try:\n    towline.use('gpuhost')\nexcept towline.DriverLoaded as error:\n    print(error)\n")
        t.check(done.stdout.startswith("True\nthis process uses unix://") and "restart the kernel" in done.stdout, f"{done}")


@t.test(180)
def use_says_what_is_wrong():
    with Home(pip=False) as home:
        catch = "import sys, towline\ntry:\n    towline.use({})\nexcept towline.Error as error:\n    print(type(error).__name__, error)\n"
        done = home.python(catch.format("'unix:///nonexistent/sock'"))
        t.check(done.stdout.startswith("NoServer unix:///nonexistent/sock does not exist; start towlined") and "--no-check" not in done.stdout
                and done.stderr == "", f"{done}")
        done = home.python(catch.format("'gpuhost', device='soft'"))
        t.check(done.stdout.startswith("Error the server decides"), f"{done}")
        # Somebody has opened a driver before, whoever it was: it is found in the process.
        other = home.folder / "libcuda.so.1"
        made = subprocess.run(["gcc", "-x", "c", "-", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(other)],
                              input="int cuInit(int n) { return n; }\n", text=True, capture_output=True)
        t.equal(made.returncode, 0, made.stderr)
        other.chmod(0o755)
        done = home.python(f"import ctypes; ctypes.CDLL('{other}')\n" + catch.format("device='soft'"))
        t.check(done.stdout.startswith(f"DriverLoaded this process has loaded {other} already") and "restart the kernel" in done.stdout, f"{done}")
        done = home.run([home.venv / "bin" / "python", "-m", "towline", "run", "--device", "soft", "--", home.venv / "bin" / "python", "-c",
                         FILLS + catch.format("")])
        t.check("towline run has started this program" in done.stdout, f"{done}")


@t.test(2 * pypi.INSTALL_LIMIT + 120, uses="pypi", matrix="pypi", whole=True)
def numba_in_a_process_that_runs():
    python = pypi.install()
    with tempfile.TemporaryDirectory(prefix="tow") as base, t.Server() as server:
        env = t.clean_environment(PYTHONPATH=str(unpack(make_wheel(pathlib.Path(base)), pathlib.Path(base, "site"))), HOME=base)
        use = f"import towline\ntowline.use('{server.address('tcp')}')\n"
        copies = ("import numpy\nfrom numba import cuda\narray = cuda.to_device(numpy.arange(1000, dtype=numpy.float32))\n"
                  "print(cuda.get_current_device().name, array.copy_to_host().sum())\n")
        done = t.run([python, "-c", use + copies], 120, env=env)
        # Nothing is said at its end either: the server's way is open as long as anything of the program uses it.
        t.equal((done.returncode, done.stdout, done.stderr), (0, "Towline Software GPU 499500.0\n", ""), "with Numba")
        done = t.run([python, "-c", "import towline\ntowline.use(device='soft')\n" + copies], 120, env=env)
        t.equal((done.returncode, done.stdout, done.stderr), (0, "Towline Software GPU 499500.0\n", ""), "with a private server")
        done = t.run([python, "-c", "from numba import cuda\nimport towline\ntry:\n    towline.use(device='soft')\n"
                      "except towline.DriverLoaded as error:\n    print(error)\n"], 120, env=env)
        t.check("before Numba is imported" in done.stdout, f"{done}")


@t.test(2 * pypi.INSTALL_LIMIT + 120, uses="pypi", matrix="pypi")
def a_notebook():
    """Cells of a real kernel: the second one opens the driver as every framework does."""
    python = pypi.install()
    with tempfile.TemporaryDirectory(prefix="tow") as base, t.Server() as server:
        site = unpack(make_wheel(pathlib.Path(base)), pathlib.Path(base, "site"))
        cells = [f"import towline\ntowline.use('{server.address('tcp')}')", FILLS,
                 "try:\n    towline.use('elsewhere')\nexcept towline.DriverLoaded as error:\n    print(error)"]
        script = ("import json, nbformat, sys\nfrom nbclient import NotebookClient\n"
                  "book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in json.loads(sys.argv[1])])\n"
                  "NotebookClient(book, timeout=120, kernel_name='python3').execute()\n"
                  "print(json.dumps([[out.get('text', out.get('data', {}).get('text/plain')) for out in cell.outputs] for cell in book.cells]))\n")
        env = t.clean_environment(PYTHONPATH=str(site), HOME=base, JUPYTER_RUNTIME_DIR=f"{base}/runtime", IPYTHONDIR=f"{base}/ipython")
        done = t.run([python, "-c", script, json.dumps(cells)], 150, env=env)
        t.equal(done.returncode, 0, f"the notebook: {done.stderr}")
        outputs = json.loads(done.stdout.splitlines()[-1])
        t.equal(outputs[:2], [[f"'{server.address('tcp')}'"], ["filled 12345\n"]], "what its cells show")
        t.check("restart the kernel" in outputs[2][0], outputs)
        t.wait_until(lambda: "session 1: " in server.log(), 20, "the server names the session")


if __name__ == "__main__":
    t.main()
