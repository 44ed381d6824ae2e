#!/usr/bin/env python3
"""Makes the golden files from PyTorch: ops.safetensors (values and gradients of every op, with options)
and runs.safetensors (ten SGD steps of three models).

    python3 -m venv venv && venv/bin/pip install torch==2.9.1 numpy safetensors
    venv/bin/python tests/golden/make_golden.py

Every case is a name here and a row of the same name in tests/cases_*.c. Stored per case, as f64:
    NAME/in0, in1, ...   inputs; f64 ones want gradients, i64 and bool ones are constants,
    NAME/const0, ...     f64 inputs without a gradient, after the others,
    NAME/out0, ...       outputs,
    NAME/cot             a random cotangent of out0 (ones cannot see a wrong softmax gradient),
    NAME/grad0, ...      its pull-back to in0, ...
"""
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

PINNED = "2.9.1"
HERE = os.path.dirname(os.path.abspath(__file__))
assert torch.__version__.startswith(PINNED), f"made with PyTorch {PINNED}, this is {torch.__version__}"
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
tensors = {}


def uniform(shape, low=-2.0, high=2.0):
    return torch.rand(shape) * (high - low) + low


def case(name, fn, *inputs, consts=()):
    """fn(*inputs, *consts) -> a tensor or several; float inputs get gradients of the first."""
    assert f"{name}/in0" not in tensors, name
    leaves = [t.clone().requires_grad_(True) if t.is_floating_point() else t.clone() for t in inputs]
    consts = [c.clone() for c in consts]
    for i, t in enumerate(inputs):
        tensors[f"{name}/in{i}"] = t.clone().contiguous()
    for i, t in enumerate(consts):
        tensors[f"{name}/const{i}"] = t.clone().contiguous()
    outs = fn(*leaves, *consts)
    outs = outs if isinstance(outs, tuple) else (outs,)
    for i, o in enumerate(outs):
        tensors[f"{name}/out{i}"] = o.detach().clone().contiguous()
    if outs[0].requires_grad:
        cot = torch.randn(outs[0].shape)
        tensors[f"{name}/cot"] = cot
        wanted = [t for t in leaves if t.requires_grad]
        grads = iter(torch.autograd.grad(outs[0], wanted, cot, allow_unused=True))
        for i, t in enumerate(leaves):
            if t.requires_grad:
                g = next(grads)
                tensors[f"{name}/grad{i}"] = (torch.zeros_like(t) if g is None else g).detach().clone().contiguous()


def elementwise():
    x = (3, 5, 7)
    case("neg", lambda a: -a, uniform(x))
    case("abs", torch.abs, uniform(x))
    case("square", torch.square, uniform(x))
    case("exp", torch.exp, uniform(x, -4, 4))
    case("log", torch.log, uniform(x, 0.1, 5))
    case("sqrt", torch.sqrt, uniform(x, 0.1, 5))
    case("tanh", torch.tanh, uniform(x, -4, 4))
    case("sigmoid", torch.sigmoid, uniform(x, -6, 6))
    case("relu", torch.relu, uniform(x))
    case("gelu", F.gelu, uniform(x, -4, 4))
    case("silu", F.silu, uniform(x, -5, 5))
    case("softplus", F.softplus, uniform(x, -5, 5))
    case("erf", torch.erf, uniform(x, -3, 3))
    case("reciprocal", torch.reciprocal, uniform(x, 0.3, 3))
    case("add_scalar", lambda a: a + 0.75, uniform(x))
    case("mul_scalar", lambda a: a * -1.5, uniform(x))
    case("pow_scalar", lambda a: a**2.5, uniform(x, 0.2, 3))
    case("pow_scalar_integer", lambda a: a**3, uniform(x))
    case("clamp", lambda a: a.clamp(-1.1, 1.3), uniform(x, -3, 3))
    binary = {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
        "maximum": torch.maximum, "minimum": torch.minimum, "pow": torch.pow,
    }
    for name, fn in binary.items():
        low = 0.3 if name in ("div", "pow") else -2
        case(name, fn, uniform(x, low, 2.5), uniform(x, low, 2.5))
        case(f"{name}_broadcast", fn, uniform((2, 1, 4), low, 2.5), uniform((3, 1), low, 2.5))
        case(f"{name}_scalar_tensor", fn, uniform((), low, 2.5), uniform((3, 4), low, 2.5))
    a, b = torch.randint(0, 4, (3, 5)).double(), torch.randint(0, 4, (5,)).double()
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        case(name, lambda p, q, f=getattr(torch, name): f(p, q), a, b)
    case("where", lambda c, p, q: torch.where(c, p, q), torch.rand(3, 4) < 0.5, uniform((3, 4)), uniform((4,)))
    case("lerp", torch.lerp, uniform((3, 4)), uniform((3, 4)), uniform((3, 1), 0, 1))
    case("lerp_", lambda p, q: p.clone().lerp_(q, 0.3), uniform((3, 4)), uniform((3, 4)))
    case("add_", lambda p, q: p.clone().add_(q), uniform((3, 4)), uniform((4,)))
    case("mul_", lambda p, q: p.clone().mul_(q), uniform((3, 4)), uniform((3, 1)))
    case("exp_", lambda p: p.clone().exp_(), uniform((3, 4)))
    case("copy_", lambda p, q: p.clone().copy_(q), uniform((3, 4)), uniform((3, 1)))


def reductions():
    x = (3, 4, 5)
    axes = {"all": None, "1": (1,), "02_keepdim": (0, 2), "last": (-1,)}
    for tag, dim in axes.items():
        keep = "keepdim" in tag
        d = tuple(range(3)) if dim is None else dim
        case(f"sum_{tag}", lambda a: a.sum(d, keepdim=keep), uniform(x))
        case(f"mean_{tag}", lambda a: a.mean(d, keepdim=keep), uniform(x))
        case(f"max_{tag}", lambda a: a.amax(d, keepdim=keep), uniform(x))
        case(f"min_{tag}", lambda a: a.amin(d, keepdim=keep), uniform(x))
        case(f"var_{tag}", lambda a: a.var(d, correction=1, keepdim=keep), uniform(x))
        case(f"norm2_{tag}", lambda a: torch.linalg.vector_norm(a, 2, d, keepdim=keep), uniform(x))
    case("var_biased", lambda a: a.var((0, 1), correction=0), uniform(x))
    case("norm1", lambda a: torch.linalg.vector_norm(a, 1, (1,)), uniform(x))
    case("norm3", lambda a: torch.linalg.vector_norm(a, 3, (0, 1)), uniform(x))
    case("norm_inf", lambda a: torch.linalg.vector_norm(a, float("inf"), (2,)), uniform(x))
    case("max_ties", lambda a: a.amax((1,)), torch.tensor([[2.0, 2, 1], [3, 3, 3], [0, 1, 0]]))
    case("argmax", lambda a: a.argmax(1), uniform(x))
    for d in (0, 1, -1):
        case(f"cumsum_{d}", lambda a: a.cumsum(d), uniform(x))
    case("sum_integer", lambda a: a.sum((1,)), torch.randint(-5, 5, (3, 4)))


def products():
    case("matmul", torch.matmul, uniform((5, 7)), uniform((7, 3)))
    case("matmul_vec_mat", torch.matmul, uniform((4,)), uniform((4, 3)))
    case("matmul_mat_vec", torch.matmul, uniform((3, 4)), uniform((4,)))
    case("matmul_dot", torch.matmul, uniform((6,)), uniform((6,)))
    case("matmul_batch", torch.matmul, uniform((2, 3, 4)), uniform((2, 4, 5)))
    case("matmul_batch_broadcast", torch.matmul, uniform((2, 1, 3, 4)), uniform((3, 4, 2)))
    case("matmul_batch_by_matrix", torch.matmul, uniform((2, 3, 4)), uniform((4, 5)))
    case("matmul_transposed", lambda a, b: torch.matmul(a.transpose(0, 1), b.transpose(0, 1)), uniform((4, 3)), uniform((5, 4)))
    case("linear", F.linear, uniform((5, 7)), uniform((3, 7)), uniform((3,)))
    case("linear_no_bias", F.linear, uniform((5, 7)), uniform((3, 7)))
    case("linear_3d", F.linear, uniform((2, 3, 7)), uniform((4, 7)), uniform((4,)))
    case("linear_1d", F.linear, uniform((7,)), uniform((4, 7)), uniform((4,)))


def convolutions():
    def conv(name, x, w, bias=True, **kw):
        ins = [uniform(x), uniform(w, -1, 1)] + ([uniform((w[0],))] if bias else [])
        case(name, lambda *a: F.conv2d(*a, **kw), *ins)

    conv("conv2d", (2, 3, 6, 5), (4, 3, 3, 3))
    conv("conv2d_no_bias", (2, 3, 6, 5), (4, 3, 3, 3), bias=False)
    conv("conv2d_stride_padding", (2, 3, 7, 6), (4, 3, 3, 3), stride=2, padding=1)
    conv("conv2d_dilation", (1, 2, 8, 9), (3, 2, 3, 3), dilation=2, padding=1)
    conv("conv2d_groups", (2, 4, 5, 5), (6, 2, 3, 3), groups=2)
    conv("conv2d_depthwise", (2, 4, 5, 5), (4, 1, 3, 3), groups=4, padding=1)
    conv("conv2d_same", (1, 2, 5, 6), (3, 2, 4, 3), padding="same")
    conv("conv2d_hw", (1, 2, 9, 8), (3, 2, 2, 4), stride=(2, 3), padding=(1, 2), dilation=(3, 1))
    conv("conv2d_1x1", (2, 5, 4, 3), (6, 5, 1, 1))
    conv("conv2d_one_channel", (2, 1, 8, 8), (16, 1, 3, 3))
    conv("conv2d_5x5", (2, 6, 9, 9), (16, 6, 5, 5), stride=2)
    x = (2, 3, 7, 8)
    case("max_pool2d", lambda a: F.max_pool2d(a, 2), uniform(x))
    case("max_pool2d_padding", lambda a: F.max_pool2d(a, 3, stride=2, padding=1), uniform(x))
    case("max_pool2d_ceil", lambda a: F.max_pool2d(a, 3, stride=2, ceil_mode=True), uniform((1, 2, 6, 8)))
    case("avg_pool2d", lambda a: F.avg_pool2d(a, 2), uniform(x))
    case("avg_pool2d_padding", lambda a: F.avg_pool2d(a, 3, stride=2, padding=1), uniform(x))
    case("avg_pool2d_exclude", lambda a: F.avg_pool2d(a, 3, stride=2, padding=1, count_include_pad=False), uniform(x))
    case("avg_pool2d_ceil", lambda a: F.avg_pool2d(a, 3, stride=2, padding=1, ceil_mode=True), uniform((1, 2, 6, 8)))
    case("adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a, (3, 5)), uniform(x))
    case("adaptive_avg_pool2d_one", lambda a: F.adaptive_avg_pool2d(a, 1), uniform(x))


def norms():
    def bn(name, shape, training, affine=True, **kw):
        c = shape[1]
        ins = [uniform(shape)] + ([uniform((c,), 0.5, 1.5), uniform((c,))] if affine else [])

        def fn(x, *rest):
            w, b = (rest[0], rest[1]) if affine else (None, None)
            mean, var = rest[-2].clone(), rest[-1].clone()
            y = F.batch_norm(x, mean, var, w, b, training=training, **kw)
            return y, mean, var

        case(name, fn, *ins, consts=(uniform((c,)), uniform((c,), 0.5, 2)))

    bn("batch_norm_train", (4, 3, 5, 2), True)
    bn("batch_norm_eval", (4, 3, 5, 2), False)
    bn("batch_norm_2d", (6, 5), True)
    bn("batch_norm_3d", (4, 3, 6), True, momentum=0.3, eps=1e-3)
    bn("batch_norm_plain", (4, 3, 2, 2), True, affine=False)
    bn("batch_norm_plain_eval", (4, 3, 2, 2), False, affine=False)
    case("layer_norm", lambda x, w, b: F.layer_norm(x, (7,), w, b), uniform((3, 5, 7)), uniform((7,)), uniform((7,)))
    case("layer_norm_2", lambda x, w, b: F.layer_norm(x, (5, 7), w, b, 1e-3), uniform((3, 5, 7)), uniform((5, 7)), uniform((5, 7)))
    case("layer_norm_plain", lambda x: F.layer_norm(x, (7,)), uniform((3, 5, 7)))
    for d in (0, 1, -1):
        case(f"softmax_{d}", lambda a: F.softmax(a, d), uniform((3, 4, 5), -4, 4))
        case(f"log_softmax_{d}", lambda a: F.log_softmax(a, d), uniform((3, 4, 5), -4, 4))


def attention():
    q, k, v = uniform((2, 3, 5, 4)), uniform((2, 3, 6, 4)), uniform((2, 3, 6, 7))
    sdpa = F.scaled_dot_product_attention
    case("attention", lambda a, b, c: sdpa(a, b, c), q, k, v)
    case("attention_scale", lambda a, b, c: sdpa(a, b, c, scale=0.3), q, k, v)
    case("attention_mask", lambda a, b, c, m: sdpa(a, b, c, attn_mask=m), q, k, v, uniform((5, 6)))
    mask = torch.rand(2, 1, 5, 6) < 0.7
    mask[..., 0] = True
    case("attention_bool_mask", lambda a, b, c, m: sdpa(a, b, c, attn_mask=m), q, k, v, mask)
    k, v = uniform((2, 3, 5, 4)), uniform((2, 3, 5, 4))
    case("attention_causal", lambda a, b, c: sdpa(a, b, c, is_causal=True), q, k, v)


def losses():
    logits, target = uniform((6, 5), -3, 3), torch.tensor([0, 4, 2, 2, 1, 3])
    w = uniform((5,), 0.2, 2)
    ce = F.cross_entropy
    case("cross_entropy", lambda a, t: ce(a, t), logits, target)
    case("cross_entropy_sum", lambda a, t: ce(a, t, reduction="sum"), logits, target)
    case("cross_entropy_none", lambda a, t: ce(a, t, reduction="none"), logits, target)
    case("cross_entropy_smooth", lambda a, t: ce(a, t, label_smoothing=0.1), logits, target)
    case("cross_entropy_weight", lambda a, t, c: ce(a, t, weight=c), logits, target, consts=(w,))
    case("cross_entropy_ignore", lambda a, t: ce(a, t, ignore_index=2), logits, target)
    for red in ("mean", "sum", "none"):
        case(f"cross_entropy_everything_{red}",
             lambda a, t, c: ce(a, t, weight=c, ignore_index=2, label_smoothing=0.2, reduction=red), logits, target, consts=(w,))
    case("cross_entropy_images", lambda a, t: ce(a, t), uniform((2, 4, 3, 2)), torch.randint(0, 4, (2, 3, 2)))
    for red in ("mean", "sum", "none"):
        case(f"mse_loss_{red}", lambda a, b: F.mse_loss(a, b, reduction=red), uniform((3, 4)), uniform((3, 4)))
        case(f"bce_with_logits_{red}", lambda a, b: F.binary_cross_entropy_with_logits(a, b, reduction=red),
             uniform((3, 4), -4, 4), uniform((3, 4), 0, 1))
    case("accuracy", lambda a, t: (a.argmax(1) == t).double().mean(), logits.clone().round(), target)


def indices_and_shapes():
    case("embedding", lambda w, i: F.embedding(i, w), uniform((5, 3)), torch.tensor([[0, 4, 2], [4, 4, 1]]))
    x = (2, 3, 4)
    case("reshape", lambda a: a.reshape(4, 6), uniform(x))
    case("reshape_copy", lambda a: a.transpose(0, 2).reshape(6, -1), uniform(x))
    case("view", lambda a: a.view(6, 4), uniform(x))
    case("permute", lambda a: a.permute(2, 0, 1), uniform(x))
    case("transpose", lambda a: a.transpose(-1, 0), uniform(x))
    case("flatten", lambda a: a.flatten(1, 2), uniform(x))
    case("expand", lambda a: a.expand(2, 3, 4), uniform((3, 1)))
    case("unsqueeze", lambda a: a.unsqueeze(1), uniform(x))
    case("squeeze", lambda a: a.squeeze(1), uniform((2, 1, 3)))
    case("slice", lambda a: a[:, 1:3], uniform(x))
    case("slice_negative", lambda a: a[:, :, -3:-1], uniform(x))
    case("select", lambda a: a.select(1, 2), uniform(x))
    case("cat", lambda a, b, c: torch.cat((a, b, c), 1), uniform((2, 3, 2)), uniform((2, 1, 2)), uniform((2, 4, 2)))
    case("stack", lambda a, b: torch.stack((a, b), 1), uniform((2, 3)), uniform((2, 3)))
    case("pad", lambda a: F.pad(a, (1, 2, 0, 3), value=0.5), uniform(x))
    case("clone", lambda a: a.clone(), uniform(x))
    case("contiguous", lambda a: a.transpose(0, 1).contiguous(), uniform(x))
    case("channels_last", lambda a: a.contiguous(memory_format=torch.channels_last), uniform((2, 3, 4, 5)))
    case("dropout_none", lambda a: F.dropout(a, 0.0), uniform(x))
    case("cast_integer", lambda a: a.to(torch.int64), uniform(x, -9, 9))
    case("arange", lambda a: torch.arange(1.0, 4.0, 0.75), torch.zeros(1, dtype=torch.int64))


# ---- ten SGD steps of three models

def hashed(shape, seed, scale):
    """Values in [-scale, scale) that C makes too (tests/support/golden.c): a mix of index and seed."""
    n = 1
    for d in shape:
        n *= d
    i = torch.arange(n, dtype=torch.int64)
    z = (i * 2654435761 + seed * 40503 + 12345) & 0xFFFFFFFF
    z = ((z ^ (z >> 15)) * 2246822519) & 0xFFFFFFFF
    z = ((z ^ (z >> 13)) * 3266489917) & 0xFFFFFFFF
    z = z ^ (z >> 16)
    return ((z >> 8).double() / 2**24 * 2 - 1).mul(scale).reshape(shape)


def models(seed=0):
    nn = torch.nn
    mlp = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 24), nn.Tanh(), nn.Linear(24, 5))
    lenet = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(8 * 4 * 4, 16), nn.ReLU(), nn.Linear(16, 5))

    def layer():
        return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True)

    transformer = nn.Sequential(nn.Embedding(11, 16), layer(), layer(), nn.Flatten(), nn.Linear(6 * 16, 5))
    batch = 8
    tokens = (hashed((batch, 6), 77 + seed, 1.0).abs() * 11).long().clamp(max=10)
    target = (hashed((batch,), 78 + seed, 1.0).abs() * 5).long().clamp(max=4)
    return {
        "mlp": (mlp, hashed((batch, 20), 75 + seed, 1.0), target),
        "lenet": (lenet, hashed((batch, 1, 12, 12), 76 + seed, 1.0), target),
        "transformer": (transformer, tokens, target),
    }


def train(model, x, y, dtype, seed=0, steps=10, low=None, lr=0.1):
    """`low`: autocast to that dtype."""
    model = model.to(dtype)
    for i, p in enumerate(model.parameters()):
        norm_weight = p.dim() == 1 and float(p.detach().min()) == 1.0 == float(p.detach().max())
        with torch.no_grad():
            fan = p.shape[-1] if p.dim() == 2 else p[0].numel() if p.dim() > 2 else 16
            p.copy_(hashed(p.shape, i + 1 + seed, fan**-0.5).to(torch.float32).to(dtype) + (1 if norm_weight else 0))
    x = x.to(torch.float32).to(dtype) if x.is_floating_point() else x
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(steps):
        opt.zero_grad()
        with torch.autocast("cpu", low or torch.bfloat16, enabled=low is not None):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach().double())
    return torch.stack(losses), {n: p.detach().double().clone() for n, p in model.named_parameters()}


def runs():
    import copy

    out = {}
    for name, (model, x, y) in models().items():
        losses, params = train(copy.deepcopy(model), x, y, torch.float64)
        losses32, params32 = train(copy.deepcopy(model), x, y, torch.float32)
        out[f"{name}/losses"] = losses
        error = torch.stack([(params32[n] - p).norm() for n, p in params.items()]).norm()
        size = torch.stack([p.norm() for p in params.values()]).norm()
        out[f"{name}/f32_error"] = torch.stack([(losses32 - losses).abs().max(), error / size])
        for n, p in params.items():
            out[f"{name}/param/{n}"] = p
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, f32 off by {error / size:.2e}")
    return out


if __name__ == "__main__":
    torch.manual_seed(20260101)
    for make in (elementwise, reductions, products, convolutions, norms, attention, losses, indices_and_shapes):
        make()
    meta = {"made_by": f"tests/golden/make_golden.py with PyTorch {PINNED}"}
    save_file(tensors, os.path.join(HERE, "ops.safetensors"), metadata=meta)
    save_file(runs(), os.path.join(HERE, "runs.safetensors"), metadata=meta)
    print(len({k.split("/")[0] for k in tensors}), "cases")
