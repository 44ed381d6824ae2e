#!/bin/sh
# Each public header compiles alone and without a warning, as C11 and as C++17, with every compiler that is
# here:  check_headers.sh <include directory>
set -u
flags="-fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -I$1"
compiled=0
for header in "$1"/luge/*.h; do
    name=luge/$(basename "$header")
    for compiler in gcc clang g++ clang++; do
        command -v $compiler >/dev/null || continue
        case $compiler in
        *++) language="c++ -std=c++17" ;;
        *) language="c -std=c11" ;;
        esac
        # shellcheck disable=SC2086
        echo "#include <$name>" | $compiler -x $language $flags - || { echo "$name: $compiler -x $language"; exit 1; }
        compiled=$((compiled + 1))
    done
done
echo "$compiled compilations"
[ "$compiled" -gt 0 ] || exit 77
