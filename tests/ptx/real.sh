#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# real.sh TEST_REAL SOURCE FOLDER TARGET...: compiles SOURCE for each target and runs its kernels.
set -e
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ ! -x "$nvcc" ]; then
    echo "skip: there is no nvcc on this machine"
    exit 77
fi
test=$1 source=$2 folder=$3
shift 3
for arch in "$@"; do
    out="$folder/real_$arch.ptx"
    if [ ! -f "$out" ] || [ "$source" -nt "$out" ]; then
        "$nvcc" -std=c++17 -diag-suppress 20054 -ptx -arch="$arch" "$source" -o "$out"
    fi
    "$test" "$out"
done
