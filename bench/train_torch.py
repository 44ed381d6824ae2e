#!/usr/bin/env python3
"""The same steps as bench/train.c in PyTorch: train_torch.py MODEL [BATCH] [SECONDS] [THREADS]."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

name = sys.argv[1] if len(sys.argv) > 1 else "mlp"
batch = int(sys.argv[2]) if len(sys.argv) > 2 else 128
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
torch.set_num_threads(threads)
torch.manual_seed(0)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(65, 128)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True, norm_first=True)
                                    for _ in range(2))
        self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, 65)
        self.register_buffer("mask", torch.triu(torch.full((64, 64), float("-inf")), 1))

    def forward(self, idx):
        x = self.tok(idx)
        for layer in self.layers:
            x = layer(x, src_mask=self.mask)
        return self.head(self.norm(x)).flatten(0, 1)


models = {
    "mlp": lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
    "mlp-small": lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
    "lenet": lambda: nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
    "transformer": Transformer,
}
model = models[name]()
tokens = name == "transformer"
x = torch.randint(0, 65, (batch, 64)) if tokens else torch.randn(batch, 1, 28, 28) if name == "lenet" else torch.randn(batch, 784)
y = torch.randint(0, 65 if tokens else 10, (batch * 64 if tokens else batch,))
opt = torch.optim.Adam(model.parameters(), 1e-3) if tokens else torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
if name == "lenet":  # whichever layout is faster for PyTorch
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)


def step():
    start = time.perf_counter()
    opt.zero_grad(set_to_none=True)
    F.cross_entropy(model(x), y).backward()
    opt.step()
    return time.perf_counter() - start


end = time.perf_counter() + 0.2 * seconds
while time.perf_counter() < end:
    step()
times = []
end = time.perf_counter() + seconds
while time.perf_counter() < end:
    times.append(step())
times.sort()
print(json.dumps({"library": f"pytorch {torch.__version__}", "model": name, "batch": batch, "threads": threads,
                  "ms_median": round(1e3 * times[len(times) // 2], 4), "ms_p10": round(1e3 * times[len(times) // 10], 4),
                  "steps": len(times)}))
