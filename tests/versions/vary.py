#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates what apigen does, from a table that differs in four functions: as that of another version may.

Usage: vary.py API-FOLDER OUT-FOLDER. No function is new to the driver table, so that only a few of the files differ
and everything else of this build can be linked to them.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

APIGEN = pathlib.Path(__file__).resolve().parents[2] / "tools" / "apigen" / "apigen.py"

# One function more, one fewer, one with another parameter, one with another encoding by hand.
CHANGES = (
    ("interop.api", "CUflushGPUDirectRDMAWritesScope scope) unsupported(rdma)", "CUflushGPUDirectRDMAWritesScope scope) noctx runs"),
    ("context.api", "fn 144 cuCtxResetPersistingL2Cache() runs", "fn 144 cuCtxResetPersistingL2Cache() pending"),
    ("context.api", "CUexecAffinityType type)", "size_t type)"),
    ("module.api", " by-hand", " by-hand wire(2)"),
)


def main():
    api, out = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="towline-vary-") as folder:
        varied = pathlib.Path(folder) / "api"
        shutil.copytree(api, varied)
        for name, was, becomes in CHANGES:
            path = varied / name
            text = path.read_text()
            start = text.index("cuModuleEnumerateFunctions") if name == "module.api" else 0
            if was not in text[start:]:
                sys.exit(f"vary: api/{name} has no '{was}' any more; choose another function")
            path.write_text(text[:start] + text[start:].replace(was, becomes, 1))
        subprocess.run([sys.executable, str(APIGEN), "--api", str(varied), "--out", str(out)], check=True)


if __name__ == "__main__":
    main()
