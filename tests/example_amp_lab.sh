#!/bin/sh
# examples/amp_lab on a few pictures: every row of its table is there, what is recomputed changes no loss, and wrong
# arguments are refused:  example_amp_lab.sh <amp_lab>
set -eu
lab=$1
data=/usr/share/datasets/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; exit 1; }
for wrong in "--batch 0" "--pictures x" "--device gpu" "--no-such-option" extra; do
    # shellcheck disable=SC2086
    if "$lab" $wrong >"$work/out" 2>&1; then fail "accepted: $wrong"; fi
done
"$lab" --help | grep -q -e --pictures
[ -f $data/train-images-idx3-ubyte.gz ] || { echo "dataset-fashion-mnist is not installed: skipped"; exit 77; }
"$lab" --pictures 96 --batch 16 >"$work/table"
cat "$work/table"
if grep -q nan "$work/table"; then fail "gradients that are not finite"; fi
[ "$(grep -c -E '^(f32|bf16|f16|f16 scaled) ' "$work/table")" -eq 24 ] || fail "not 24 rows"
# Rows come in pairs: without and with recomputation. The same loss, and less memory.
grep -E '^(f32|bf16|f16)' "$work/table" | sed 's/f16 scaled/f16_scaled/' | awk '
    { loss = $4; peak = $10 }
    $3 == "no" { plain = loss; most = peak }
    $3 == "yes" && (loss != plain || peak >= most) { print "recomputation changed this: " $0; bad = 1 }
    END { exit bad }'
