#!/usr/bin/env python3
"""Writes a small data set in MNIST's format to a folder: ten classes, a bright block at a place of its
own for each, on noise. For programs that want a folder called mnist. make_mnist.py FOLDER TRAIN TEST."""
import os
import random
import struct
import sys

os.makedirs(sys.argv[1], exist_ok=True)
random.seed(1)
for part, count in (("train", int(sys.argv[2])), ("t10k", int(sys.argv[3]))):
    labels = [random.randrange(10) for _ in range(count)]
    images = bytearray()
    for label in labels:
        pixels = bytearray(random.randrange(60) for _ in range(28 * 28))
        top, left = 2 + 12 * (label // 5), 1 + 5 * (label % 5)
        for y in range(top, top + 10):
            for x in range(left, left + 5):
                pixels[y * 28 + x] = 150 + random.randrange(100)
        images += pixels
    with open(os.path.join(sys.argv[1], f"{part}-images-idx3-ubyte"), "wb") as f:
        f.write(struct.pack(">IIII", 0x803, count, 28, 28) + images)
    with open(os.path.join(sys.argv[1], f"{part}-labels-idx1-ubyte"), "wb") as f:
        f.write(struct.pack(">II", 0x801, count) + bytes(labels))
