#!/usr/bin/env python3
"""The same steps as bench/train.c in PyTorch: train_torch.py MODEL [BATCH] [SECONDS] [THREADS] [DEVICE]."""
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

GPU_BLOCK = 10

name = sys.argv[1] if len(sys.argv) > 1 else "mlp"
batch = int(sys.argv[2]) if len(sys.argv) > 2 else 128
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 2.0
threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
device = torch.device(sys.argv[5] if len(sys.argv) > 5 else "cpu")
torch.set_num_threads(threads)
torch.manual_seed(0)
# What Luge does unless told otherwise: f32 is f32, and results do not depend on which kernel was quickest.
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = False


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


def convolution(n_in, n_out, kernel, stride):
    return nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.body = nn.Sequential(convolution(n_in, n_out, 3, stride), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True),
                                  convolution(n_out, n_out, 3, 1), nn.BatchNorm2d(n_out))
        self.shortcut = nn.Sequential(convolution(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out)) if n_in != n_out else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet18():
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    return nn.Sequential(convolution(3, 64, 3, 1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                         *(BasicBlock(*w) for w in widths),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


models = {
    "mlp": lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)),
    "mlp-small": lambda: nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)),
    "lenet": lambda: nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)),
    "resnet18": resnet18,
    "transformer": Transformer,
}
inputs = {"transformer": lambda: torch.randint(0, 65, (batch, 64)), "lenet": lambda: torch.randn(batch, 1, 28, 28),
          "resnet18": lambda: torch.randn(batch, 3, 32, 32)}
tokens = name == "transformer"
model = models[name]().to(device)
x = inputs.get(name, lambda: torch.randn(batch, 784))().to(device)
y = torch.randint(0, 65 if tokens else 10, (batch * 64 if tokens else batch,)).to(device)
if x.dim() == 4:  # the quicker layout for PyTorch, too
    model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
opt = torch.optim.Adam(model.parameters(), 1e-3) if tokens else torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
steps_a_block = GPU_BLOCK if device.type == "cuda" else 1


def block():
    """Seconds for a step, over a block of them."""
    start = time.perf_counter()
    for _ in range(steps_a_block):
        opt.zero_grad(set_to_none=True)
        F.cross_entropy(model(x), y).backward()
        opt.step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / steps_a_block


def blocks(duration):
    times = [block()]
    end = time.perf_counter() + duration
    while time.perf_counter() < end:
        times.append(block())
    return sorted(times)


blocks(0.2 * seconds)
times = blocks(seconds)
print(json.dumps({"library": f"pytorch {torch.__version__}", "model": name, "batch": batch, "threads": threads,
                  "device": device.type, "ms_median": round(1e3 * times[len(times) // 2], 4),
                  "ms_p10": round(1e3 * times[len(times) // 10], 4), "steps": steps_a_block * len(times)}))
