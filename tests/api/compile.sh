#!/usr/bin/env bash
# Compiles the programs as they stand, strictly, with each compiler named: C11, and C++17 those that are
# marked for it. compile.sh <include folder> <source folder> <compiler>...
set -eu
include=$1 source=$2
shift 2
strict=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -fsyntax-only -I "$include")
for cc in "$@"; do
    cxx=${cc/gcc/g++}; cxx=${cxx/clang/clang++}
    for program in "$source"/[0-9s]*.c; do
        "$cc" -std=c11 "${strict[@]}" "$program"
        "$cc" -std=c11 -DLUGE_LINES "${strict[@]}" "$program"
    done
    "$cxx" -x c++ -std=c++17 -DLUGE_LINES "${strict[@]}" "$source"/02_xor.c
    for program in "$source"/{01_hello.c,02_xor.c,13_penalty.c,10_wrapper.cpp}; do "$cxx" -x c++ -std=c++17 "${strict[@]}" "$program"; done
    echo "$cc and $cxx: good"
done
