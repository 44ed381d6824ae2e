#!/usr/bin/env python3
"""Makes tests/nn_values.h from PyTorch: outputs of attention and encoder layers, parameters after steps
of optimizers, and schedules, all in float64.

    python3 -m venv venv && venv/bin/pip install torch==2.9.1 numpy
    venv/bin/python tests/golden/make_nn_values.py > tests/nn_values.h
"""
import torch
from torch import nn

PINNED = "2.9.1"
assert torch.__version__.startswith(PINNED), f"made with PyTorch {PINNED}, this is {torch.__version__}"
torch.set_default_dtype(torch.float64)


def waves(module):
    """Parameter number i has the elements sin(k + 1 + 10 i) / 2."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_((torch.sin(torch.arange(p.numel()) + 1.0 + 10 * i) / 2).reshape(p.shape))
    return module


def cosines(*shape):
    n = torch.Size(shape).numel()
    return torch.cos(torch.arange(n).double()).reshape(shape)


def show(name, values):
    text = [f"{float(v):.17g}" for v in torch.as_tensor(values).flatten()]
    print(f"\nstatic const double {name}[] = {{")
    for i in range(0, len(text), 4):
        print("    " + ", ".join(text[i : i + 4]) + ",")
    print("};")


def attention():
    def encoder(**kw):
        return waves(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, **kw))

    x = cosines(2, 3, 4)
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    show("encoder_default", encoder()(x))
    show("encoder_gelu_first", encoder(activation="gelu", norm_first=True)(x))
    show("encoder_causal", encoder(layer_norm_eps=1e-3)(x, src_mask=causal))
    mha = waves(nn.MultiheadAttention(4, 2, batch_first=True))
    kv = cosines(2, 5, 4)
    show("attention_cross", mha(x, kv, kv)[0])


def optimizers():
    """Five steps on one parameter [3] that starts at 1, -2, 0.5; the gradient of step t is
    cos(k + 3 t) * (k + 1)."""
    kinds = {
        "sgd_plain": lambda p: torch.optim.SGD(p, 0.1),
        "sgd_decay": lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.2),
        "sgd_momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        "sgd_dampening": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, dampening=0.4, weight_decay=0.2),
        "sgd_nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.8, nesterov=True, weight_decay=0.2),
        "adam_plain": lambda p: torch.optim.Adam(p, 0.1),
        "adam_settings": lambda p: torch.optim.Adam(p, 0.1, betas=(0.7, 0.95), eps=0.01, weight_decay=0.2),
        "adamw_plain": lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.2),
        "adamw_settings": lambda p: torch.optim.AdamW(p, 0.1, betas=(0.0, 0.5), eps=0.01, weight_decay=0.01),
    }
    for name, make in kinds.items():
        p = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
        opt = make([p])
        k = torch.arange(3).double()
        for t in range(5):
            p.grad = torch.cos(k + 3 * t) * (k + 1)
            opt.step()
        show(name, p.detach())


def schedules():
    def factors(make, steps):
        opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
        sched = make(opt)
        values = []
        for _ in range(steps):
            values.append(opt.param_groups[0]["lr"])
            opt.step()
            sched.step()
        return values

    lr = torch.optim.lr_scheduler
    show("step_lr", factors(lambda o: lr.StepLR(o, 3, 0.1), 10))
    show("cosine_lr", factors(lambda o: lr.CosineAnnealingLR(o, 10, eta_min=0.1), 11))
    show("one_cycle_lr", factors(lambda o: lr.OneCycleLR(o, 1.0, 10, cycle_momentum=False), 10))
    show("one_cycle_other_lr",
         factors(lambda o: lr.OneCycleLR(o, 1.0, 7, pct_start=0.5, div_factor=4.0, final_div_factor=10.0,
                                         cycle_momentum=False), 7))


if __name__ == "__main__":
    print(f"/* Made by tests/golden/make_nn_values.py with PyTorch {PINNED}. */")
    print("#ifndef LG_TESTS_NN_VALUES_H\n#define LG_TESTS_NN_VALUES_H")
    print("\n/* Each test uses some of them. */\n#pragma GCC diagnostic ignored \"-Wunused-const-variable\"")
    attention()
    optimizers()
    schedules()
    print("\n#endif")
