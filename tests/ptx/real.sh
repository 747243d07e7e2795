#!/bin/sh
# real.sh TEST_REAL SOURCE FOLDER: compiles SOURCE for an old and a new target and runs its kernels.
set -e
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ ! -x "$nvcc" ]; then
    echo "skip: there is no nvcc on this machine"
    exit 77
fi
for arch in sm_75 sm_120; do
    out="$3/real_$arch.ptx"
    if [ ! -f "$out" ] || [ "$2" -nt "$out" ]; then
        "$nvcc" -std=c++17 -diag-suppress 20054 -ptx -arch=$arch "$2" -o "$out"
    fi
    "$1" "$out"
done
