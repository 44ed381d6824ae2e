#!/usr/bin/env python3
"""Checks what can be counted: lengths of functions and files, calls that have no place here, white space.
`check_style.py [source directory]`."""
import pathlib
import re
import sys

FUNCTION_LINES, FILE_LINES = 100, 800

LIBRARY = ["core", "autograd", "ops", "cpu", "nn", "optim", "amp", "data", "io", "train"]
OTHERS = ["include", "examples", "tests", "bench", "tools"]

MEMORY = ["malloc", "calloc", "realloc", "free", "strdup", "strndup", "posix_memalign", "aligned_alloc"]
OUTPUT = ["printf", "fprintf", "vprintf", "vfprintf", "puts", "fputs", "putchar", "perror"]
ENDS = ["exit", "_exit", "quick_exit", "abort"]
UNSAFE = ["sprintf", "vsprintf", "strcpy", "strcat", "strtok", "gets", "atoi", "atol", "atof", "rand", "srand"]

# Banned in the library, but for these files.
PLACES = {
    **{name: {"core/alloc.c"} for name in MEMORY},
    **{name: {"include/luge/status.h"} for name in OUTPUT},   # luge_exit_code, inline in the user's program
    **{name: set() for name in ENDS},
    **{name: set() for name in UNSAFE},
}
PLACES["free"] |= {"io/safetensors_write.c", "train/profile_trace.c",
                   "train/memory_snapshot.c"}                  # what jansson made
CALL = re.compile(r"(?<![\w.>])(" + "|".join(PLACES) + r")\s*\(")

TEXT_OR_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
LEFT_FOR_LATER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")


def code_only(text):
    """The text without comments and literals, with its lines kept."""
    return TEXT_OR_COMMENT.sub(lambda m: "\n" * m.group().count("\n") or " ", text)


def long_functions(code):
    """(line, length) of functions that are too long. A body begins with a brace in the first column, or at
    the end of a line that begins in it, and ends with one in the first column."""
    lines = code.split("\n")
    start = head = None
    for number, line in enumerate(lines, 1):
        if start is None:
            if re.match(r"\w", line):
                head = number
            is_data = re.match(r"(typedef|struct|union|enum|static const struct)\b[^()]*$|.*=\s*\{\s*$", line)
            if head is not None and not is_data and (line.rstrip() == "{" or re.match(r"\w.*\)\s*\{\s*$", line)):
                start = head
        elif line.startswith("}"):
            if number - start + 1 > FUNCTION_LINES:
                yield start, number - start + 1
            start = head = None


def complaints_of(root, path):
    text = (root / path).read_text()
    lines = text.split("\n")
    name = path.as_posix()
    if len(lines) - 1 > FILE_LINES:
        yield f"{name}: {len(lines) - 1} lines; at most {FILE_LINES}"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield f"{name}:{number}: white space at the end"
        if "\t" in line:
            yield f"{name}:{number}: a tab"
        if LEFT_FOR_LATER.search(line):
            yield f"{name}:{number}: something left for later"
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield f"{name}: must end with one newline"
    code = code_only(text)
    for start, length in long_functions(code):
        yield f"{name}:{start}: a function of {length} lines; at most {FUNCTION_LINES}"
    if path.parts[0] not in [*LIBRARY, "include"]:
        return
    for number, line in enumerate(code.split("\n"), 1):
        for call in CALL.findall(line):
            if name not in PLACES[call]:
                yield f"{name}:{number}: {call}() has no place here"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    files, complaints = 0, []
    for room in LIBRARY + OTHERS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".c", ".h", ".def", ".cpp") and path.is_file():
                files += 1
                complaints += complaints_of(root, path.relative_to(root))
    for line in complaints:
        print(line)
    print(f"{files} files, {len(complaints)} complaints")
    return 1 if complaints or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
