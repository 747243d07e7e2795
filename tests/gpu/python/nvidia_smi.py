"""NVIDIA's own monitoring program, where it is installed."""
import os
import shutil
import subprocess
import sys

program = shutil.which("nvidia-smi", path=os.environ["PATH"] + ":/usr/local/nvidia/bin")
if program is None:
    print("nvidia-smi is not installed")
    sys.exit(77)
done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60)
print(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.returncode)
