#!/usr/bin/env bash
# Runs a program with a CUDA driver that computes on the CPU (emucuda.cpp). Needs g++ on x86-64, and nothing of NVIDIA.
# Not cargo itself, which would build whatever asks for CUDA_PATH once more; as cargo's runner:
#   export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=$PWD/tests/emucuda/run.sh
#   cargo test --release --features intellect-node/cuda,intellect-node/wgpu --test cuda
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
made=$here/../../target/emucuda
mkdir -p "$made/kernels" "$made/toolkit/include"
g++ -std=c++20 -O2 -Wall -shared -fPIC -o "$made/libcuda.so" "$here/emucuda.cpp" -ldl
cp "$made/libcuda.so" "$made/libnvrtc.so"
# The header of all kernels, compiled once: it takes two thirds of the time of a kernel.
mkdir -p "$made/header"
g++ -std=c++20 -O1 -w -fno-strict-aliasing -ffp-contract=off -shared -fPIC -x c++-header -o "$made/header/emu.h.gch" "$here/emu.h"
export EMUCUDA_HEADER=$made/header
export EMUCUDA=$here EMUCUDA_CACHE=$made/kernels LD_LIBRARY_PATH=$made${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# CubeCL asks for the headers of a toolkit; the compiler that stands in needs none.
export CUDA_PATH=$made/toolkit
exec "$@"
