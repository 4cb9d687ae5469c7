"""Random messages: valid ones in every form that msgpack allows, and ones with something wrong.

Everything comes from the generator that is passed in, so a failure is a seed and an index.
"""

import random
import struct
from collections.abc import Callable

Forms = random.Random


def integer(rng: Forms, number: int) -> bytes:
    """Any of the forms that can hold the number, the shortest or not."""
    forms = []
    if 0 <= number < 128:
        forms.append(struct.pack(">B", number))
    if -32 <= number < 0:
        forms.append(struct.pack(">b", number))
    for marker, code in [(0xCC, "B"), (0xCD, "H"), (0xCE, "I"), (0xCF, "Q")]:
        if 0 <= number < 1 << 8 * struct.calcsize(">" + code):
            forms.append(struct.pack(">B" + code, marker, number))
    for marker, code in [(0xD0, "b"), (0xD1, "h"), (0xD2, "i"), (0xD3, "q")]:
        half = 1 << 8 * struct.calcsize(">" + code) - 1
        if -half <= number < half:
            forms.append(struct.pack(">B" + code, marker, number))
    return rng.choice(forms)


def _length(rng: Forms, length: int, forms: list[tuple[int, str]]) -> bytes:
    fitting = [form for form in forms if length < 1 << 8 * struct.calcsize(">" + form[1])]
    marker, code = rng.choice(fitting)
    return struct.pack(">B" + code, marker, length)


def text(rng: Forms, data: bytes) -> bytes:
    """A str of these bytes."""
    if len(data) < 32 and rng.random() < 0.5:
        return bytes([0xA0 | len(data)]) + data
    return _length(rng, len(data), [(0xD9, "B"), (0xDA, "H"), (0xDB, "I")]) + data


def binary(rng: Forms, data: bytes) -> bytes:
    """A bin of these bytes."""
    return _length(rng, len(data), [(0xC4, "B"), (0xC5, "H"), (0xC6, "I")]) + data


def array(rng: Forms, elements: list[bytes]) -> bytes:
    """An array of packed elements."""
    if len(elements) < 16 and rng.random() < 0.5:
        return bytes([0x90 | len(elements)]) + b"".join(elements)
    return _length(rng, len(elements), [(0xDC, "H"), (0xDD, "I")]) + b"".join(elements)


def mapping(rng: Forms, entries: list[bytes]) -> bytes:
    """A map of packed entries, key and value each."""
    if len(entries) < 16 and rng.random() < 0.5:
        return bytes([0x80 | len(entries)]) + b"".join(entries)
    return _length(rng, len(entries), [(0xDE, "H"), (0xDF, "I")]) + b"".join(entries)


def some_number(rng: Forms) -> int:
    """Numbers near every change of width, and in between."""
    edge = rng.choice([0, 1, 32, 127, 128, 255, 256, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63])
    return min(max(0, edge + rng.randint(-2, 2)), (1 << 64) - 1)


def some_integer(rng: Forms) -> int:
    """As some_number, of either sign."""
    number = some_number(rng)
    return -number if rng.random() < 0.3 and number <= 1 << 63 else number


def some_text(rng: Forms) -> bytes:
    """Text of any script and of lengths around every change of form."""
    length = rng.choice([0, 1, 5, 31, 32, 36, 64, 255, 256])
    return "".join(rng.choice("abc09é画🖼") for _ in range(length)).encode()[:300]


def valid_text(rng: Forms) -> bytes:
    """some_text, cut at a character."""
    return some_text(rng).decode(errors="ignore").encode()


def anything(rng: Forms, depth: int = 0) -> bytes:
    """One value of any type, including types that no field has."""
    simple: list[Callable[[], bytes]] = [
        lambda: b"\xc0",
        lambda: rng.choice([b"\xc2", b"\xc3"]),
        lambda: integer(rng, some_integer(rng)),
        lambda: b"\xca" + rng.randbytes(4),
        lambda: b"\xcb" + struct.pack(">d", rng.choice([2.0, 0.5, float("nan")])),
        lambda: text(rng, valid_text(rng)),
        lambda: text(rng, b"\xff\xfe"),
        lambda: binary(rng, rng.randbytes(rng.choice([0, 3, 300]))),
        lambda: b"\xd6\xff" + rng.randbytes(4),
        lambda: b"\xc7\x05\x01" + rng.randbytes(5),
        lambda: b"\xd8\x2a" + rng.randbytes(16),
    ]
    containers: list[Callable[[], bytes]] = [
        lambda: array(rng, [anything(rng, depth + 1) for _ in range(rng.randint(0, 3))]),
        lambda: mapping(
            rng,
            [anything(rng, depth + 1) + anything(rng, depth + 1) for _ in range(rng.randint(0, 3))],
        ),
    ]
    return rng.choice(simple if depth > 3 else simple + containers)()


def _fields(rng: Forms, kind: str) -> dict[bytes, bytes]:
    """The packed fields of a valid message, in declared order."""
    fields = {b"type": text(rng, kind.encode()), b"mm_hash": text(rng, valid_text(rng))}
    if kind == "req":
        fields[b"compatibility_hash"] = text(rng, valid_text(rng))
    else:
        fields[b"status"] = integer(rng, rng.randint(0, 5))
    if rng.random() < 0.7:
        fields[b"session_id"] = text(rng, valid_text(rng))
    if kind == "req" and rng.random() < 0.5:
        fields[b"connector_version"] = integer(rng, some_integer(rng))
    if kind == "ack" and rng.random() < 0.7:
        count = rng.choice([0, 1, 15, 16, 64, 65, 300])
        indices = [integer(rng, some_number(rng)) for _ in range(count)]
        fields[b"src_block_indices"] = array(rng, indices)
    if kind == "ack" and rng.random() < 0.7:
        fields[b"agent_metadata"] = binary(rng, rng.randbytes(rng.choice([0, 1, 255, 256])))
        fields[b"mem_descriptor"] = binary(rng, rng.randbytes(rng.choice([0, 1, 255, 256])))
    return fields


def struct_message(rng: Forms, kind: str) -> bytes:
    """A req or an ack: fields in any order, some twice, some unknown, some missing, some wrong."""
    fields = _fields(rng, kind)
    if rng.random() < 0.15:
        del fields[rng.choice(list(fields))]
    if rng.random() < 0.3:
        fields[rng.choice(list(fields))] = anything(rng)
    if rng.random() < 0.1:
        fields[b"type"] = text(rng, rng.choice([b"req", b"ack", b"", b"REQ"]))
    entries = [text(rng, key) + value for key, value in fields.items()]
    if rng.random() < 0.5:
        entries.append(text(rng, rng.choice([b"x", b"chiasmus", b"\xff"])) + anything(rng))
    if rng.random() < 0.2:
        again = rng.choice(list(_fields(rng, kind).items()))
        entries.append(text(rng, again[0]) + again[1])
    if rng.random() < 0.05:
        entries.append(anything(rng) + anything(rng))
    if rng.random() < 0.5:
        rng.shuffle(entries)
    return mapping(rng, entries)


def descriptor_list(rng: Forms) -> bytes:
    """A list of rows, most of them right."""
    rows = []
    for _ in range(rng.choice([0, 1, 3, 16, 64, 65])):
        columns = [integer(rng, some_number(rng)) for _ in range(3)]
        if rng.random() < 0.01:
            columns[rng.randrange(3)] = anything(rng)
        if rng.random() < 0.01:
            columns = columns[: rng.randrange(3)]
        rows.append(array(rng, columns))
    return array(rng, rows)


def message(rng: Forms, kind: str) -> bytes:
    """A message of this kind, one in three of them with bytes changed, cut or added."""
    data = bytearray(descriptor_list(rng) if kind == "memdesc" else struct_message(rng, kind))
    if rng.random() < 0.33:
        damage = rng.randrange(4)
        at = rng.randrange(len(data))
        if damage == 0:
            data[at] = rng.randrange(256)
        elif damage == 1:
            del data[at:]
        elif damage == 2:
            data += rng.randbytes(rng.randint(1, 3))
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 3))
    return bytes(data)
