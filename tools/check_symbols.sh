#!/bin/sh
# Everything that the shared library exports begins with luge_:  check_symbols.sh <libluge.so>
set -u
command -v nm >/dev/null || { echo "nm is not here: skipped"; exit 77; }
exported=$(nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//') || exit 1
count=$(printf '%s\n' "$exported" | grep -c '^luge_')
foreign=$(printf '%s\n' "$exported" | grep -v '^luge_')
if [ -n "$foreign" ]; then
    echo "exported, but not ours:"
    printf '%s\n' "$foreign"
    exit 1
fi
echo "$count symbols, all of them luge_"
[ "$count" -gt 100 ]
