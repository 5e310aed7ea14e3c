#!/usr/bin/env python3
"""Writes megatron_small.idx and megatron_small.bin: a dataset in Megatron-LM's memory-mapped format.

Written from the format alone (docs/token-file.md), with the standard library: four documents of which one has two
sequences, one is empty and two end with 9, in 16-bit ids. Run it in this folder; the test megatron_test.cc knows the ids.
"""
import struct

SEQUENCES = [[5, 6, 7, 9], [300, 301], [302, 9], [], [65535]]
DOCUMENTS = [0, 1, 3, 4, 5]  # the first sequence of each, and the end
UINT16 = 8

with open("megatron_small.bin", "wb") as tokens:
    for sequence in SEQUENCES:
        tokens.write(struct.pack(f"<{len(sequence)}H", *sequence))

with open("megatron_small.idx", "wb") as index:
    index.write(b"MMIDIDX\x00\x00")
    index.write(struct.pack("<QBQQ", 1, UINT16, len(SEQUENCES), len(DOCUMENTS)))
    sizes = [len(sequence) for sequence in SEQUENCES]
    index.write(struct.pack(f"<{len(sizes)}i", *sizes))
    pointers = [2 * sum(sizes[:i]) for i in range(len(sizes))]
    index.write(struct.pack(f"<{len(pointers)}q", *pointers))
    index.write(struct.pack(f"<{len(DOCUMENTS)}q", *DOCUMENTS))
