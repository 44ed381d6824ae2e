#!/bin/sh
# Doxygen has nothing to complain about: every public symbol is documented:  check_docs.sh <source directory>
set -eu
command -v doxygen >/dev/null || { echo "doxygen is not here: skipped"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$1"
{
    cat Doxyfile
    echo "OUTPUT_DIRECTORY = $work"
    echo "GENERATE_HTML = NO"
    echo "GENERATE_XML = YES"
    echo "WARN_LOGFILE = $work/warnings"
} | doxygen - >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
if [ -s "$work/warnings" ]; then
    cat "$work/warnings"
    echo "$(grep -c warning "$work/warnings") warnings"
    exit 1
fi
# Without a warning because it saw nothing would be no good either.
functions=$(cat "$work"/xml/*.xml | grep -c '<memberdef kind="function"')
echo "$functions documented functions"
[ "$functions" -gt 200 ]
