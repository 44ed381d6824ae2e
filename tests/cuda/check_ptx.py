#!/usr/bin/env python3
"""Looks for arithmetic of f64 in kernels that are not about f64: check_ptx.py FILE.ptx...

On most cards f64 runs at a small part of the speed of f32, and a forgotten suffix of a constant is enough for it.
Kernels whose template arguments name double may use it; others only for a reason, below."""
import re
import subprocess
import sys

ARITHMETIC = re.compile(r"\s+(?:@\S+\s+)?(?:add|sub|mul|fma|div|sqrt|rcp|max|min|setp|cvt)\S*\.f64")
REASONS = {
    "convert": "its other type is an argument of the call, and may be f64",
    "arange": "elements are start + i * step in f64, as on the CPU",
    "multi_step": "coefficients of a tensor, by one thread of a block",
    "multi_count": "whether the norm, an f64, is finite",
    "multi_squares": "sums of squares that must not overflow",
    "multi_norm": "sums of squares that must not overflow",
    "multi_scale": "a factor that may be smaller than f32 goes",
    "multi_unscale": "the factor, by one thread of a block",
    "schedule": "one thread",
    "rescale": "one thread",
    "reduce": "the factor of a mean or variance, once a sum",
    "merge_slices": "the factor of a mean or variance, once a sum",
}


def entries(path):
    """Kernels of a file, with how often each computes in f64."""
    name, count = None, 0
    for line in open(path, encoding="utf-8"):
        begin = re.search(r"\.entry\s+(\w+)", line)
        if begin:
            name, count = begin.group(1), 0
        elif name and ARITHMETIC.match(line):
            count += 1
        elif name and line.startswith("}"):
            yield name, count
            name = None


def readable(names):
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()


def main():
    found = [e for path in sys.argv[1:] for e in entries(path)]
    if not found:
        sys.exit("there are no kernels in " + " ".join(sys.argv[1:]))
    used, bad = set(), 0
    for name, (_, count) in zip(readable([n for n, _ in found]), found):
        if count == 0 or "double" in name:
            continue
        base = re.sub(r"^void ", "", name).split("<")[0].split("(")[0]
        used.add(base)
        if base not in REASONS:
            print(f"{name}: {count} instructions of f64")
            bad += 1
    print(f"{len(found)} kernels, {bad} with f64 for no known reason")
    return 1 if bad else 0


sys.exit(main())
