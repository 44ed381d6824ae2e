#!/bin/sh
# Installs into a directory of its own and moves it, then builds examples/embed there in all four ways
# (CMake and pkg-config, shared and static) and runs each:  check_install.sh <build directory> <source directory>
set -eu
command -v pkg-config >/dev/null || { echo "pkg-config is not here: skipped"; exit 77; }
command -v make >/dev/null || { echo "make is not here: skipped"; exit 77; }
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }; }

quietly cmake --install "$build" --prefix "$work/first"
mv "$work/first" "$work/prefix"     # nothing may remember where it was installed
for file in include/luge/luge.h include/luge/elementwise.def; do
    [ -f "$work/prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done

for static in OFF ON; do
    quietly cmake -S "$source/examples/embed" -B "$work/cmake-$static" -DCMAKE_PREFIX_PATH="$work/prefix" \
        -DEMBED_STATIC=$static
    quietly cmake --build "$work/cmake-$static"
    "$work/cmake-$static/embed" --rounds 2
done

pc=$(dirname "$(find "$work/prefix" -name luge.pc)")
for static in "" STATIC=1; do
    mkdir "$work/make$static"
    cp "$source"/examples/embed/*.[ch] "$source/examples/embed/Makefile" "$work/make$static"
    quietly env PKG_CONFIG_PATH="$pc" make -C "$work/make$static" $static
    "$work/make$static/embed" --rounds 2
done
