#!/usr/bin/env python3
"""Writes the wrappers through which a program's calls of Luge can be made to fail one after another:
make_wrappers.py <preprocessed luge.h> <output.c>. See fail_calls.c. A call that is to fail sets the
error and then runs as it would with an error standing, so that what it owns is still taken care of."""
import re
import sys

# What returns one of these can fail; reading, closing, releasing and destroying always work.
FAIL = re.compile(r"^(luge_(tensor|module|optim|sched|scaler|accum|dataset|loader|meter|transform|profile) \*|luge_status |luge_scope |double |int |(const )?void \*)$")
NEVER = {
    "luge_error", "luge_error_take", "luge_fail", "luge_scope_exit", "luge_none", "luge_retain", "luge_keep", "luge_line_leave_", "luge_line_leave_status_",
    "luge_tensor_grad", "luge_module_param_count", "luge_num_threads", "luge_loader_epoch", "luge_optim_lr",
    "luge_sched_factor", "luge_scaler_value", "luge_accum_pending", "luge_memory_empty_cache", "luge_rng_uniform", "luge_rng_normal",
}
ALSO = {"luge_loader_next"}


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)\s*(?=[;\w])|__attribute__\s*\(\([^;]*?\)\)", " ", text, flags=re.S)
    out = ['#include <luge/luge.h>\n#include "tests/api/fail_calls.h"\n']
    names = []
    for m in re.finditer(r"(?<![\w*])((?:const )?[A-Za-z_0-9]+ \**)\s*(luge_[a-z0-9_]+)\(([^;{}]*)\)\s*;", text):
        kind, name, args = m.group(1), m.group(2), " ".join(m.group(3).split())
        if name in NEVER or (not FAIL.match(kind) and name not in ALSO) or "..." in args:
            continue
        pieces, depth, part = [], 0, ""
        for ch in args:
            depth += ch in "(" and 1 or ch in ")" and -1 or 0
            if ch == "," and depth == 0:
                pieces.append(part)
                part = ""
            else:
                part += ch
        pieces.append(part)
        if args == "void":
            params, given = "void", ""
        else:
            given = ", ".join(re.search(r"(\w+)(?:\[\d*\])?\s*$", p).group(1) for p in pieces)
            params = ", ".join(p.strip() for p in pieces)
        names.append(name)
        out.append(f"{kind}__real_{name}({params});\n{kind}__wrap_{name}({params});\n"
                   f"{kind}__wrap_{name}({params})\n{{\n    fail_calls_count(\"{name}\");\n"
                   f"    return __real_{name}({given});\n}}\n")
    open(sys.argv[2], "w", encoding="utf-8").write("\n".join(out))
    open(sys.argv[2] + ".ld", "w", encoding="utf-8").write("\n".join(f"--wrap={n}" for n in names) + "\n")
    if len(names) < 150:
        sys.exit(f"only {len(names)} functions found in the headers: the pattern misses some")


main()
