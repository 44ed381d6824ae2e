#!/usr/bin/env python3
"""Luge and PyTorch in turn on the same training steps, in one run: compare.py BUILD_DIR [--rounds 5]
[--seconds 2] [--threads 2] [--device cpu|cuda] [--python PYTHON] [--preload LIB]. Machines are shared and noisy: quote the
ratios, not the times. PYTHON is an interpreter that has torch; LIB a BLAS to preload for it (Debian's
python3-torch is fastest with libopenblas0-openmp's)."""
import argparse
import json
import os
import statistics
import subprocess
import sys

CASES = {"cpu": [("mlp", 128), ("mlp-small", 64), ("lenet", 64), ("transformer", 16)],
         "cuda": [("mlp", 128), ("mlp-small", 64), ("lenet", 64), ("resnet18", 128), ("transformer", 16)]}
p = argparse.ArgumentParser(description=__doc__)
p.add_argument("build")
p.add_argument("--rounds", type=int, default=5)
p.add_argument("--seconds", type=float, default=2)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--device", default="cpu", help="cpu, cuda or cuda:<number>")
p.add_argument("--python", default=sys.executable)
p.add_argument("--preload")
args = p.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
env = dict(os.environ, OMP_NUM_THREADS=str(args.threads), OPENBLAS_NUM_THREADS=str(args.threads))
# Settings that hold OpenBLAS to older kernels would make the rival slower than it is.
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    env.pop(name, None)
torch_env = dict(env, LD_PRELOAD=args.preload) if args.preload else env


def run(command, environment):
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


print(f"{'model':<12} {'batch':>5} {'luge ms':>9} {'torch ms':>9} {'ratio':>6}  (ratio: min to max over {args.rounds} rounds)")
for model, batch in CASES[args.device.split(":")[0]]:
    tail = [model, str(batch), str(args.seconds), str(args.threads), args.device]
    luge, torch = [], []
    for _ in range(args.rounds):
        luge.append(run([os.path.join(args.build, "bench", "bench_train")] + tail, env)["ms_median"])
        torch.append(run([args.python, os.path.join(here, "train_torch.py")] + tail, torch_env)["ms_median"])
    ratios = sorted(t / l for l, t in zip(luge, torch))
    print(f"{model:<12} {batch:>5} {statistics.median(luge):>9.3f} {statistics.median(torch):>9.3f} "
          f"{statistics.median(ratios):>6.2f}  ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)
