# SPDX-License-Identifier: Apache-2.0
"""Machine code that says what it is of, and does nothing: cubins and fat binaries, made by hand."""

import struct

PTX, ELF = 1, 2


def record(format_, what, value, content=b""):
    return struct.pack("<BBH", format_, what, value) + content


def kernel_records(params, threads):
    """Parameters are (offset, size); `threads`: what __launch_bounds__ says, or 0."""
    out = b""
    for ordinal, (offset, size) in enumerate(params):
        out += record(4, 0x17, 12, struct.pack("<IHHI", 0, ordinal, offset, size << 18))
    if params:
        end = params[-1][0] + params[-1][1]
        out += record(3, 0x19, end) + record(4, 0x0A, 8, struct.pack("<IHH", 0, 0x210, end))
    if threads:
        out += record(4, 0x05, 12, struct.pack("<III", threads, 1, 1))
    return out


def cubin(kernels, registers=32, padding=0):
    """`kernels`: {name: (params, threads)}. `padding`: bytes of code of each."""
    strings, symbols, sections, body, registered = b"\0", bytes(24), [], b"", b""
    begin = 64

    def name(text):
        nonlocal strings
        at = len(strings)
        strings += text.encode() + b"\0"
        return at

    def section(title, kind, content, info=0, link=0):
        nonlocal body
        sections.append((title, kind, begin + len(body), len(content), link, info))
        body += content + bytes(-len(content) % 8)

    # 0 none, 1 names, 2 symbols, then the code and the records of each kernel.
    parts = []
    for i, (title, (params, threads)) in enumerate(kernels.items()):
        code = 3 + 2 * i
        symbols += struct.pack("<IBBHQQ", name(title), 0x12, 0x10, code, 0, 16)
        registered += record(4, 0x2F, 8, struct.pack("<II", i + 1, registers))
        parts.append((name(".text." + title), 1, bytes(16 + padding), i + 1, 0))
        parts.append((name(".nv.info." + title), 0x70000000, kernel_records(params, threads), code, 2))
    all_of_them = name(".nv.info")
    section(0, 3, strings)
    section(0, 2, symbols, link=1)
    for title, kind, content, info, link in parts:
        section(title, kind, content, info, link)
    section(all_of_them, 0x70000000, registered, link=2)
    table = bytes(64) + b"".join(struct.pack("<IIQQQQIIQQ", title, kind, 0, 0, at, size, link, info, 8, 0)
                                 for title, kind, at, size, link, info in sections)
    end = begin + len(body) + len(table)  # of all: program headers, one of them
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1\x33\7", 2, 190, 1, 0, end, begin + len(body), 0x5A055A, 64, 56, 1, 64,
                       len(sections) + 1, 1)
    return head + body + table + bytes(56)


def lz4(data):
    """One block of literals only."""
    length = len(data) - 15
    assert length >= 0
    return b"\xf0" + b"\xff" * (length // 255) + bytes([length % 255]) + data


def fatbin(entries, packed=False):
    """`entries`: (kind, sm, bytes)."""
    body = b""
    for kind, sm, data in entries:
        payload = lz4(data) if packed else data
        payload += bytes(-len(payload) % 8)
        body += struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 64, len(payload), len(lz4(data)) if packed else 0, 0, 0, sm, 0, 0,
                            0x2000 if packed else 0, 0, len(data) if packed else 0) + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
