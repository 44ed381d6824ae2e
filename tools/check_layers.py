#!/usr/bin/env python3
"""Checks who includes whom, by the table in ARCHITECTURE.md: `check_layers.py [source directory]`.

Includes with quotes are relative to the root of the sources (in examples, to the file); the rooms that a
file may look into, and the public headers that it may see, depend on the room it lies in."""
import pathlib
import re
import sys

# Rooms below each room, which it may include beside itself.
UP_TO_OPS = {"core", "autograd", "ops"}
MAY_INCLUDE = {
    "core": set(),
    "autograd": {"core"},
    "ops": {"core", "autograd"},
    "nn": UP_TO_OPS | {"io"},                      # modules are saved and loaded
    "optim": UP_TO_OPS | {"nn"},                   # the parameters of a module, by name
    "amp": UP_TO_OPS | {"optim"},                  # gradients by optimizer
    "data": UP_TO_OPS,
    "io": UP_TO_OPS,
    "train": UP_TO_OPS | {"nn", "optim", "amp", "data", "io"},
    "cpu": {"core"},
    "cuda": {"core"},
    "examples": set(),
    "bench": {"core", "ops"},                      # kernels are measured by their rows
    "tools": set(),
}
# Single files that a room may include although its room is closed to it.
ALSO = {
    "cpu": {"ops/ops.def", "ops/attrs.h", "ops/scalar_ops.h", "ops/update_rules.h"},
    "cuda": {"ops/ops.def", "ops/attrs.h", "ops/scalar_ops.h", "ops/update_rules.h"},
    "core": {"ops/ops.def"},                       # the numbers of ops
}
# A room that nobody looks into, but for the file that opens it.
OPENS = {"core/cuda_module.c": {"cuda/module.h"}}
# Public headers: what a room implements, and what those are made of.
BASE = {"base.h", "status.h", "tensor.h", "scope.h", "process.h"}
GRAPH = BASE | {"autograd.h", "ops.h", "elementwise.def"}
MAY_SEE = {
    "core": BASE | {"autograd.h", "elementwise.def", "lines.h", "profile.h"},
    "autograd": BASE | {"autograd.h"},
    "ops": GRAPH,
    "nn": GRAPH | {"nn.h"},
    "optim": GRAPH | {"optim.h", "nn.h"},
    "amp": GRAPH | {"amp.h", "optim.h"},
    "data": GRAPH | {"data.h"},
    "io": GRAPH | {"nn.h"},
    "train": GRAPH | {"amp.h", "data.h", "nn.h", "optim.h", "profile.h", "train.h"},
    "cpu": GRAPH,
    "cuda": GRAPH,
}
# The public headers among themselves.
HEADER_MAY_SEE = {
    "base.h": set(),
    "status.h": {"base.h"},
    "scope.h": {"base.h", "status.h"},
    "process.h": {"base.h", "status.h"},
    "tensor.h": {"base.h", "status.h"},
    "ops.h": {"base.h", "status.h", "elementwise.def"},
    "elementwise.def": set(),
    "autograd.h": {"base.h", "status.h"},
    "nn.h": {"base.h", "status.h", "autograd.h", "ops.h"},
    "optim.h": {"base.h", "status.h"},
    "amp.h": {"base.h", "status.h"},
    "train.h": {"base.h", "status.h", "data.h"},
    "data.h": {"base.h", "status.h"},
    "lines.h": {"base.h", "status.h"},
    "profile.h": {"base.h", "status.h"},
}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<luge/([^>]+)>)', re.M)


def complaints_of(root, path):
    """What is wrong with the includes of one file."""
    room = path.parts[0]
    for match in INCLUDE.finditer((root / path).read_text()):
        quoted, public = match.groups()
        if public is not None:
            if room == "include":
                allowed = HEADER_MAY_SEE.get(path.name)
                if path.name == "luge.h":
                    continue
                if allowed is None:
                    yield f"{path}: a new public header: add it to HEADER_MAY_SEE in tools/check_layers.py"
                elif public not in allowed:
                    yield f"{path}: the public headers' order forbids <luge/{public}>"
            elif room in MAY_SEE and public not in MAY_SEE[room]:
                yield f"{path}: {room}/ does not see <luge/{public}>"
            continue
        if room in ("examples", "bench", "tools") and (root / path.parent / quoted).exists():
            continue
        if quoted.startswith("../include/luge/"):   # ops.def, which the preprocessor of others reads, too
            continue
        if not (root / quoted).exists():
            yield f"{path}: \"{quoted}\" is not there; includes with quotes begin at the root"
            continue
        target = pathlib.PurePosixPath(quoted).parts[0]
        if target == room or target in MAY_INCLUDE.get(room, set()) or quoted in ALSO.get(room, set()):
            continue
        if quoted in OPENS.get(path.as_posix(), set()):
            continue
        yield f"{path}: {room}/ may not include {quoted}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    files, complaints = 0, []
    for room in [*MAY_INCLUDE, "include"]:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".c", ".h", ".def", ".cpp", ".cu", ".cuh") and path.is_file():
                files += 1
                complaints += complaints_of(root, path.relative_to(root))
    for line in complaints:
        print(line)
    print(f"{files} files, {len(complaints)} forbidden includes")
    return 1 if complaints or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
