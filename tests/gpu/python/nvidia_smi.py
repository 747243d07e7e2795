# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own monitoring program, where it is installed."""
import os
import shutil
import subprocess
import sys

program = shutil.which("nvidia-smi", path=os.environ["PATH"] + ":/usr/local/nvidia/bin")
if program is None:
    print("nvidia-smi is not installed")
    sys.exit(77)


def ask(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    sys.stderr.write(done.stderr)
    print("nvidia-smi", *arguments, "-> exit code", done.returncode)
    codes.append(done.returncode)
    return done.stdout


codes = []
print(ask("-L"))
query = ask("--query-gpu=name,uuid,memory.total,driver_version", "--format=csv")
print(query)
names = [line.split(", ")[0] for line in query.splitlines()[1:]]
table = ask()  # times, temperatures and processes in it are never the same
print("the table names", [name for name in names if name in table], "driver", query.rpartition(", ")[2].strip() in table)
sys.exit(max(codes, key=abs))
