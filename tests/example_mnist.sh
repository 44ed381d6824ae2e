#!/bin/sh
# examples/mnist end to end, on Fashion-MNIST where it is installed: learns, writes its files, the same bits
# with one thread and with two, and says what is wrong:  example_mnist.sh <mnist>
set -eu
mnist=$1
data=/usr/share/datasets/fashion-mnist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; exit 1; }
refused() { # text in the message, then arguments
    says=$1; shift
    if "$mnist" "$@" >"$work/out" 2>"$work/err"; then fail "accepted: $*"; fi
    grep -q -e "$says" "$work/err" || { cat "$work/err"; fail "does not say '$says': $*"; }
}

"$mnist" --help | grep -q -e --model
refused "no model \"resnet\"" --model resnet --data "$work"
refused "train-images-idx3-ubyte: not there" --data "$work"
refused "a number from 1" --epochs 0
refused "a number from 1" --batch 12x
refused "auto, cpu, cuda or cuda:<number>" --device gpu
refused "off, bf16 or f16" --amp half --data "$work"
refused "a number from 1" --window 0
export LUGE_CUDA_MODULE=$work/none.so # the rest is about the CPU
refused "device cuda:1: there is no" --device cuda:1
"$mnist" --epochs 1 --data "$work" 2>/dev/null | grep -q "on the CPU.*; no GPU: there is no" || fail "does not say why it is on the CPU"
refused "what is \"extra\"" extra
touch "$work/file"
refused "not a directory" --out "$work/file"
refused "help says" --no-such-option

[ -f $data/train-images-idx3-ubyte.gz ] || { echo "dataset-fashion-mnist is not installed: skipped"; exit 77; }
for threads in 1 2; do
    "$mnist" --model mlp --epochs 1 --threads $threads --out "$work/$threads" 2>/dev/null >"$work/out"
done
cat "$work/out"
cmp "$work/1/weights.safetensors" "$work/2/weights.safetensors" || fail "one thread and two give other weights"
accuracy=$(sed -n 's/^epoch 1: .*accuracy \([0-9]*\).*/\1/p' "$work/out")
[ "$accuracy" -ge 83 ] || fail "only $accuracy % right"
"$mnist" --model mlp --epochs 1 --amp f16 --window 4 --batch 16 2>/dev/null >"$work/out"
accuracy=$(sed -n 's/^epoch 1: .*accuracy \([0-9]*\).*/\1/p' "$work/out")
[ "$accuracy" -ge 83 ] || fail "only $accuracy % right in f16, in windows of 4"
[ "$(head -c 8 "$work/1/report.png" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || fail "report.png is no PNG"
