"""The table of a SentencePiece normaliser, looked through before it is used: a damaged one would end the process.

It is the size of a double-array trie in bytes, its units (32 bits each), and the replacements, each ended by NUL. A
unit holds the byte that leads to it, the offset of its children, and whether a replacement hangs below it.
"""

import struct

import numpy as np


def check(table: bytes) -> None:
    """Raise ValueError unless every way through the trie stays inside it and ends at the start of a character."""
    if len(table) < 4:
        raise ValueError("a normaliser without a size")
    size = struct.unpack_from("<I", table)[0]
    if size == 0 or size % 4 or 4 + size > len(table):
        raise ValueError("a normaliser of the wrong size")
    units = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64)
    texts = np.frombuffer(table, np.uint8, offset=4 + size)
    table[4 + size :].decode("utf-8")
    offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
    labels = units & ((1 << 31) | 0xFF)
    seen = np.zeros(len(units), bool)
    nodes = np.zeros(1, np.int64)
    while len(nodes):
        seen[nodes] = True
        bases = nodes ^ offsets[nodes]
        if ((bases | 0xFF) >= len(units)).any():
            raise ValueError("a normaliser that leads out of itself")
        values = units[bases[(units[nodes] >> 8) & 1 == 1]] & 0x7FFFFFFF
        if (values >= len(texts)).any() or ((texts[values] & 0xC0) == 0x80).any():
            raise ValueError("a normaliser with a replacement that is not there")
        children = bases[:, None] ^ np.arange(1, 256)
        children = np.unique(children[labels[children] == np.arange(1, 256)])
        nodes = children[~seen[children]]
