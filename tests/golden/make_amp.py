#!/usr/bin/env python3
"""Makes amp.safetensors: what PyTorch's GradScaler does with random patterns of overflows, and how far bf16
takes training from f32.

    venv/bin/python tests/golden/make_amp.py        (venv: see make_golden.py)

    scaler/settings  [RUNS, 4] init_scale, growth_factor, backoff_factor, growth_interval
    scaler/overflow  [RUNS, STEPS] 1 where a gradient was infinite
    scaler/scale     [RUNS, STEPS] the scale after each update
    scaler/weight    [RUNS, STEPS] the weight after each step of Adam, lr 0.1, whose gradient is 0.5
    bf16/MODEL       [SEEDS] |parameters - those of f32| / |those of f32| after 20 steps, lr 0.01, of the models of
                     make_golden.py under autocast on the CPU, for seeds 0, 1000, 2000, ...
"""
import os
import random
import sys

import torch
from safetensors.torch import save_file

PINNED = "2.9.1"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import make_golden  # noqa: E402

assert torch.__version__.startswith(PINNED), f"made with PyTorch {PINNED}, this is {torch.__version__}"
RUNS, STEPS, SEEDS = 200, 40, 5


def run(settings, pattern):
    init, growth, backoff, interval = settings
    weight = torch.zeros(1, dtype=torch.float32, requires_grad=True)
    optim = torch.optim.Adam([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=init, growth_factor=growth, backoff_factor=backoff,
                                  growth_interval=int(interval))
    scales, weights = [], []
    for overflow in pattern:
        optim.zero_grad()
        loss = (weight * (float("inf") if overflow else 0.5)).sum()
        scaler.scale(loss).backward()
        scaler.step(optim)
        scaler.update()
        scales.append(scaler.get_scale())
        weights.append(weight.item())
    return scales, weights


def distance(name, seed):
    with_low, plain = [
        make_golden.train(*make_golden.models(seed)[name], torch.float32, seed, 20, low, 0.01)[1] for low in (torch.bfloat16, None)]
    error = torch.stack([(with_low[n] - p).norm() for n, p in plain.items()]).norm()
    return float(error / torch.stack([p.norm() for p in plain.values()]).norm())


def main():
    rng = random.Random(7)
    settings, patterns, scales, weights = [], [], [], []
    for i in range(RUNS):
        s = (2.0 ** rng.randint(0, 20), rng.choice([2.0, 2.0, 1.5, 3.0]), rng.choice([0.5, 0.5, 0.25, 0.7]),
             rng.choice([1, 2, 3, 5, 8]))
        share = rng.choice([0.02, 0.1, 0.3, 0.6])
        p = [1 if rng.random() < share else 0 for _ in range(STEPS)]
        a, b = run(s, p)
        settings.append(s), patterns.append(p), scales.append(a), weights.append(b)
    far = {f"bf16/{name}": [distance(name, 1000 * s) for s in range(SEEDS)] for name in ("mlp", "lenet", "transformer")}
    print(far)
    save_file({**{k: torch.tensor(v, dtype=torch.float64) for k, v in far.items()},
               "scaler/settings": torch.tensor(settings, dtype=torch.float64),
               "scaler/overflow": torch.tensor(patterns, dtype=torch.uint8),
               "scaler/scale": torch.tensor(scales, dtype=torch.float32),
               "scaler/weight": torch.tensor(weights, dtype=torch.float32)},
              os.path.join(HERE, "amp.safetensors"))


main()
