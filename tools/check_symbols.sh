#!/bin/sh
# Everything that the shared library exports begins with luge_, and it needs nothing of CUDA, which only the
# module does:  check_symbols.sh <libluge.so>
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
needs=$(objdump -p "$1" | awk '$1 == "NEEDED" {print $2}') || exit 1
if printf '%s\n' "$needs" | grep -i -E 'cuda|cublas|cudnn|nvidia'; then
    echo "the library needs these of CUDA"
    exit 1
fi
echo "$count symbols, all of them luge_; needs" $needs
[ "$count" -gt 100 ]
