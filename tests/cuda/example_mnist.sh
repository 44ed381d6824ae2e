#!/bin/sh
# examples/mnist on the device that is there, and the same on the CPU: both learn pictures that are easy to
# tell apart, and leave the same kinds of files:  example_mnist.sh <mnist> <python>
set -eu
mnist=$1 python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; exit 1; }

# Class k: a bright band of two rows at 2 k, and noise.
"$python" - "$work" <<'EOF'
import random, struct, sys
random.seed(1)
for part, count in (("train", 320), ("t10k", 100)):
    labels = bytes(i % 10 for i in range(count))
    pixels = bytes(random.randrange(180, 256) if row // 2 == k else random.randrange(60)
                   for k in labels for row in range(28) for _ in range(28))
    with open(f"{sys.argv[1]}/{part}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">ii", 0x801, count) + labels)
    with open(f"{sys.argv[1]}/{part}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">iiii", 0x803, count, 28, 28) + pixels)
EOF

for device in cpu cuda; do
    "$mnist" --model mlp --data "$work" --epochs 2 --batch 16 --device $device --out "$work/$device" \
        >"$work/out" 2>"$work/err" || { cat "$work/err"; fail "fails on $device"; }
    cat "$work/out"
    accuracy=$(sed -n 's/^epoch 2: .*accuracy \([0-9]*\).*/\1/p' "$work/out")
    [ "$accuracy" -ge 95 ] || fail "only $accuracy % right on $device"
    [ -s "$work/$device/report.png" ] || fail "no report.png on $device"
done
grep -q '^on cuda:0$' "$work/out" || fail "does not say that it is on the GPU"
# As long as no card has run this version (docs/gpu_status.md).
grep -q '^warning: cuda:0: .*emulated GPU only' "$work/err" || fail "no word of caution"
size() { wc -c <"$work/$1/weights.safetensors"; }
[ "$(size cpu)" -eq "$(size cuda)" ] || fail "weights of other sizes"
