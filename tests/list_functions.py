#!/usr/bin/env python3
"""Lists the functions that the public headers declare: list_functions.py <preprocessed luge.h> <output>,
one FUNCTION(name) a line."""
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
names = re.findall(r'visibility\("default"\)\)\)[^;()]*?\b(luge_\w+)\s*\(', text)
if len(names) < 250:
    sys.exit(f"only {len(names)} functions found in the headers: the pattern misses some")
with open(sys.argv[2], "w", encoding="utf-8") as out:
    out.writelines(f"FUNCTION({name})\n" for name in sorted(names))
