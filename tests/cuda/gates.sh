#!/bin/sh
# What is compiled for a GPU must pass: no warnings, no spilled registers, no f64 by mistake. Shows first that each
# of these would be found, in kernels made for that:  gates.sh <nvcc> <python3> <directory of the module's PTX>
set -eu
nvcc=$1 python=$2 ptx=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; exit 1; }
# The module's own flags (cmake/LugeCuda.cmake).
compile() { "$nvcc" -std=c++17 -arch=sm_90 -Xptxas=-warn-spills,-warn-lmem-usage -Werror=all-warnings "$@" >"$work/out" 2>&1; }
refused() { # text in the message, file
    if compile -cubin -o "$work/x.cubin" "$2"; then fail "$2 compiles, but should not: $1"; fi
    grep -q "$1" "$work/out" || { cat "$work/out"; fail "$2 does not fail for '$1'"; }
}

refused "spilled to local memory" "$here/planted/spill.cu"
refused "comparison of unsigned" "$here/planted/warning.cu"
compile -ptx -o "$work/planted.ptx" "$here/planted/f64.cu" || { cat "$work/out"; fail "f64.cu does not compile"; }
if "$python" "$here/check_ptx.py" "$work/planted.ptx" >"$work/out"; then fail "f64 is not found where it was planted"; fi
grep -q "leak.*instructions of f64" "$work/out" || { cat "$work/out"; fail "f64 is not found where it was planted"; }

ls "$ptx"/*.ptx >/dev/null 2>&1 || { echo "the CUDA module was not built: skipped"; exit 77; }
"$python" "$here/check_ptx.py" "$ptx"/*.ptx
