#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kernels wrote is seen by the host after every call that waits for the device: over every line, with and without the
right to watch memory. tests/api/test_visible.c tries the calls; here they are compared with the table."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import towtest as t  # noqa: E402

sys.path.insert(0, str(t.ROOT / "tools" / "apigen"))
import table  # noqa: E402

t.same_for_all_users()

PROGRAM = t.BUILD / "tests" / "api" / "api_visible"
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]

# A function of such a name may wait for the device, or say that it is done.
SUSPICIOUS = re.compile(r"Synchronize|Query|Elapsed|cuMemcpy|cuMemset|cuMem.*Free|Destroy|Unregister|Unload|Release|Reset|Close|"
                        r"Unmap|Trim|Prefetch|Wait|Detach")
# Why those do not that the table does not call `shows`.
NOT_SHOWING = {
    r"cuMemset.*Async|cuMemcpy(HtoD|DtoD|HtoA|Peer|Batch|3DBatch|3DWithAttributes|WithAttributes)Async.*|"
    r"cuMemcpy(3DBatch|Batch)Async(_v2)?|cuMem.*BatchAsync|cuMemPrefetchAsync.*|cuMemFreeAsync|cuStreamWait.*|cuStreamBatch.*":
        "in stream order: nobody waits",
    r"cuMemcpy(DtoD|DtoA|AtoD|AtoA)_v2": "on the device: nobody waits",
    r"cuGraph.*(Memcpy|Memset|MemFree|Wait).*|cuGraph(Destroy.*|ExecDestroy|ReleaseUserObject)|cuUserObjectRelease":
        "nodes, and graphs, whose launches go on",
    r"cu(Stream|Event|TexObject|SurfObject|TexRef|Link|MemPool|GreenCtx)Destroy.*|cuDestroyExternal.*|cu(Ctx|GreenCtx)WaitEvent|"
    r"cuLogsUnregisterCallback|cuCtxResetPersistingL2Cache": "what was given to it goes on",
    r"cuMem(Unmap|Release|AddressFree|PoolTrimTo)|cuDeviceGraphMemTrim|cuLibraryUnload": "NVIDIA's driver does not wait in it",
    r"cuDevicePrimaryCtx(Release|Reset)(_v2)?|cuCtxD(estroy_v2|etach)": "the context's memory and work end with it",
}


def functions():
    """What the client has, by name; another name for a function is that one's affair."""
    return {f.name: f.flags for family in table.read_families(t.ROOT / "api") for f in family.functions
            if not f.stub and "same" not in f.calls}


@t.test()
def every_call_that_waits_is_tried():
    env = t.clean_environment(LD_LIBRARY_PATH=str(t.LIBCUDA.parent))
    tried = set(t.run([PROGRAM, "--list"], env=env).stdout.split())
    all_functions = functions()
    t.check(len(all_functions) > 400, f"only {len(all_functions)} functions were read from the table")
    showing = {name for name, words in all_functions.items() if words & {"syncs", "shows"}}
    t.equal(tried - showing, set(), "what is tried and not called `shows` or `syncs` in the table")
    t.equal(showing - tried - set(ELSEWHERE), set(), "what the table calls `shows` or `syncs` and tests/api/test_visible.c does not try")
    unclear = [name for name in all_functions
               if SUSPICIOUS.search(name) and name not in showing and not any(re.fullmatch(pattern, name) for pattern in NOT_SHOWING)]
    t.equal(unclear, [], "what may wait for the device, and neither the table nor this test says whether the host sees more then")


# Tried by other programs.
ELSEWHERE = {"cuIpcCloseMemHandle": "needs another process: tests/api/test_ipc.c"}


def run(kind, **env):
    with t.Server() as server:
        done = t.towline_run(server.address(kind), [PROGRAM], 90 * t.SLOW, env=env)
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"), done.stdout + done.stderr + server.log()[-2000:])


for _kind in ("shm", "unix", "tcp"):
    t.test(120, name=f"watched_{_kind}", matrix="visible", trees=("plain", "asan"))(lambda kind=_kind: run(kind))
    t.test(120, name=f"tracked_{_kind}", matrix="visible")(lambda kind=_kind: run(kind, TOWLINE_MANAGED="track"))
    t.test(120, name=f"compared_{_kind}", matrix="visible")(lambda kind=_kind: run(kind, TOWLINE_MANAGED="compare"))


def reachable_folder():
    """A new folder that user nobody can enter and execute files in; None: there is none."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="towline-test-", dir=place))
        program = folder / "try"
        program.write_text("#!/bin/sh\n")
        for path in (program, folder):
            path.chmod(0o755)
            os.chown(path, 65534, 65534)
        if subprocess.run([*NOBODY, program], capture_output=True).returncode == 0:
            return folder
        shutil.rmtree(folder)
    return None


@t.test(120, waits=True)
def seen_by_an_ordinary_user():
    """Who may not watch memory, with a server of his own. This tree may lie where only root can read: a copy does not."""
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        raise t.Skip("setpriv is not installed")
    if os.geteuid() != 0:
        run_as_ordinary([], t.TOWLINE, PROGRAM)
        return
    folder = reachable_folder()
    if folder is None:
        raise t.Skip("user nobody can execute nothing in /tmp and /var/tmp")
    try:
        for name in ("bin", "lib"):
            shutil.copytree(t.BUILD / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("*.p"))
        shutil.copy(PROGRAM, folder / "program")
        run_as_ordinary(NOBODY, folder / "bin" / "towline", folder / "program", TMPDIR=str(folder))
    finally:
        shutil.rmtree(folder)


def run_as_ordinary(before, towline, program, **env):
    for kind in ("shm", "unix"):
        done = t.run([*before, towline, "run", "--device", "soft", "--", program], 90 * t.SLOW,
                     env=t.clean_environment(TOWLINE_TRANSPORT=kind, HOME="/nonexistent", XDG_RUNTIME_DIR="", **env))
        t.check(done.returncode == 0 and done.stdout.endswith("OK\n"), f"{kind}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    t.main()
