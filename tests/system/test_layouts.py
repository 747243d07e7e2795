#!/usr/bin/env python3
"""What the server tells of kernels when their image is loaded for the first time: read out of its machine code, as asking the
driver would make it load them all. A dry GPU takes machine code and is asked as the real driver is."""

import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import cubins  # noqa: E402
import towtest as t  # noqa: E402

HELPERS = t.ROOT / "tests" / "system" / "helpers"
COMPARE = t.BUILD / "tests" / "server" / "compare_layouts"
KERNELS = 40  # more than are described at a first load
DRY = {"device": "dry"}
ARGUMENTS = ("--soft-capability=9.0", "--soft-memory=1G", "--idle-workers=0")


def program():
    return t.build_c(HELPERS / "layouts.c", ["-lcuda"], "layouts")


def kernels(salt, threads=256, count=KERNELS):
    """`salt` makes an image like no other."""
    return {**{f"k{i}": ([(0, 8), (8, 4)], threads) for i in range(count)}, f"salt{salt}": ([], 0)}


def waited(server, image, kind, what, n):
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        path, stats = pathlib.Path(folder) / "image", pathlib.Path(folder) / "stats"
        path.write_bytes(image)
        done = t.towline_run(server.address("tcp"), [program(), path, kind, what, str(n)], env={"TOWLINE_STATS": str(stats)})
        t.check(done.returncode == 0, f"{kind} {what}: {done.stdout}{done.stderr}{server.log()}")
        return json.loads(stats.read_text())["replies_waited"]


def of_each(server, form, kind, what, salt):
    """Replies that each kernel of an image waits for that the server sees for the first time. (The program itself waits for
    three or four, which is a matter of time.)"""
    few, many = (waited(server, form(f"{salt}{n}"), kind, what, n) for n in (5, KERNELS))
    return round((many - few) / (KERNELS - 5), 1)


FORMS = {
    "cubin": lambda salt: cubins.cubin(kernels(salt)),
    "fatbin": lambda salt: cubins.fatbin([(cubins.ELF, 80, cubins.cubin(kernels("old"), 90)), (cubins.ELF, 90, cubins.cubin(kernels(salt)))]),
    "packed": lambda salt: cubins.fatbin([(cubins.ELF, 90, cubins.cubin(kernels(salt)))], packed=True),
    # Unpacked while the driver loads it.
    "large": lambda salt: cubins.fatbin([(cubins.ELF, 90, cubins.cubin(kernels(salt), padding=20000))], packed=True),
}


@t.test(120, trees=("plain", "asan", "tsan"))
def kernels_of_a_large_image_come_with_its_first_load():
    for cache in ((), ("--code-cache=0",)):
        with t.Server(*ARGUMENTS, *cache, **DRY) as server:
            for name, form in FORMS.items():
                for kind in ("module", "library"):
                    t.equal(of_each(server, form, kind, "launch", name + kind), 0, f"{name}, {kind}, {cache}: replies per kernel")


@t.test(120)
def a_second_session_knows_them_too():
    with t.Server(*ARGUMENTS, **DRY) as server:
        image = FORMS["large"]("again")
        first = waited(server, image, "library", "launch", KERNELS)
        # Ten kernels are known whole now: the others still come with the load.
        asked = waited(server, image, "library", "attributes", 10)
        t.check(10 <= asked - first + 2 <= 13, f"{asked} replies for attributes of 10 kernels, {first} for launches")
        for what, n in (("launch", KERNELS), ("attributes", 10)):
            later = waited(server, image, "library", what, n)
            t.check(later <= first + 1, f"{later} replies for {what} in a second session, {first} in the first")


@t.test(120)
def what_the_image_does_not_say_is_asked_once():
    with t.Server(*ARGUMENTS, **DRY) as server:
        # Larger blocks than the image promises are the driver's to judge; attributes come all at once; so do bounds of a node.
        for what in ("wide", "attributes", "set", "refused", "nodes"):
            for kind in ("module", "library"):
                expected = {"nodes": 2}.get(what, 1)
                t.equal(of_each(server, FORMS["cubin"], kind, what, what + kind), expected, f"{kind}, {what}: replies per kernel")


def text(salt, count=KERNELS):
    """PTX: what the driver makes of it, only the driver knows."""
    entries = "".join(f".visible .entry {name}(.param .u64 a, .param .u32 b) {{ ret; }}\n" for name in kernels(salt, count=count))
    return f".version 8.0\n.target sm_90\n.address_size 64\n{entries}".encode()


@t.test(60)
def kernels_of_a_small_text_are_described_at_once():
    with t.Server(*ARGUMENTS, **DRY) as server:
        few, many = (waited(server, text(f"small{n}", 15), "module", "launch", n) for n in (5, 15))
        t.check(abs(many - few) <= 1, f"{few} replies for 5 kernels of 16, {many} for 15")


@t.test(60)
def what_is_not_certain_is_asked_as_ever():
    images = {
        # Which of them the driver takes, nobody knows.
        "twins": lambda salt: cubins.fatbin([(cubins.ELF, 90, cubins.cubin(kernels(salt + a))) for a in "ab"]),
        "text": text,
    }
    with t.Server(*ARGUMENTS, **DRY) as server:
        for name, form in images.items():
            t.equal(of_each(server, form, "module", "launch", name), 1, f"{name}: replies per kernel")


SOURCE = r"""
struct S { char c; double d; char e; };
struct __align__(16) B { int a[5]; };
struct Empty {};
struct Large { int v[2000]; };
extern "C" __global__ void plain(int *p, float f, char c, S s, B b, long long q) { p[0] = f + c + s.d + b.a[1] + q; }
extern "C" __global__ void none() {}
extern "C" __global__ void unused(char, short, char, int, Empty, char, double, char) {}
extern "C" __global__ void __launch_bounds__(96, 2) bounded(int *p) { __shared__ int s[256]; s[threadIdx.x] = p[0]; __syncthreads();
    p[1] = s[threadIdx.x ^ 1]; }
extern "C" __global__ void large(const __grid_constant__ Large l, int *p) { p[0] = l.v[p[1]]; }
static __global__ void hidden(int *p, short n) { p[0] = n; }
template <class T> __global__ void many(T *p, T v) { *p = v; }
template __global__ void many<int>(int *, int);
template __global__ void many<double>(double *, double);
template __global__ void many<B>(B *, B);
void use() { hidden<<<1, 1>>>(0, 0); }
"""


@t.test(300)
def they_are_what_the_compiler_says():
    nvcc = t.find_nvcc()
    if not nvcc:
        raise t.Skip("nvcc is not installed")
    with tempfile.TemporaryDirectory(prefix="tow") as folder:
        source, image = pathlib.Path(folder) / "a.cu", pathlib.Path(folder) / "a.fatbin"
        source.write_text(SOURCE)
        # The machine code beside the PTX that it was made of, which the software GPU reads.
        for sm in (75, 80, 90, 100, 120):
            t.run([nvcc, "-fatbin", "-gencode", f"arch=compute_{sm},code=[sm_{sm},compute_{sm}]", str(source), "-o", str(image)])
            done = t.run([COMPARE, "-d", "soft", "-c", str(sm), str(image)])
            t.check(done.returncode == 0 and "9 kernels, 0 without a layout, 0 differences" in done.stdout, f"sm_{sm}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    t.main()
