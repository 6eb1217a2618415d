#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
#
# usage: corpus-ring.py FOLDER
# Makes the corpus of fuzz-ring: what a peer that keeps to proto/ring_abi.h would write, one kind of message a file.
import os
import struct
import sys

TURN, REQUEST, RESPONSE, COUNTS, WIRE, SIDES, CHUNK, POST, STATE = range(9)
SEND, WRITE, READ, CMP_SWAP, FETCH_ADD, DATAGRAM, ATOMIC_WRITE, FLUSH, AIM = range(1, 10)
R_READ, R_ATOMIC, R_RNR, R_NAK, R_DONE = range(1, 6)
FIRST, LAST, IN_CHUNK, IMM, SOLICITED, RESTART, INV, GRH = (1 << i for i in range(8))
WHOLE = FIRST | LAST
OPEN, LOCAL, READ_ONLY = ((i + 1) << 8 | 0x5A for i in range(3))
QPN, PEER_QPN, MCAST, SRQN = 0x101, 0x201, 0xFFFFFF, 0x102
RC, UC, UD = 0, 1, 2
SMALL, NO_RECEIVES, TAGS, XRC = 0x10, 0x20, 0x40, 0x80
LEG, XRC_SEND = 0, 1
NO_TAG, RNDV, FIN, EAGER = range(4)


def request(op, flags, msn=0, length=0, total=None, raddr=0, rkey=0, chunk=0, slots=1, imm=0, data=b"x" * 24):
    head = struct.pack("<BBBBIIII", op, flags, slots, 0, msn, length, length if total is None else total, imm)
    return bytes([REQUEST]) + head + struct.pack("<QII", raddr, rkey, chunk) + data.ljust(24, b"\0")[:24]


def atomic(op, msn, raddr, rkey, swap_add=1, compare=0):
    head = struct.pack("<BBBBIIII", op, WHOLE, 1, 0, msn, 0, 0, 0)
    return bytes([REQUEST]) + head + struct.pack("<QIIQQ", raddr, rkey, 0, swap_add, compare)


def datagram(msn, length, flags=WHOLE, slots=1, dst=QPN, src=PEER_QPN, qkey=0x11, chunk=0, link=1, dlid=0, data=b"y" * 16):
    head = struct.pack("<BBBBIIII", DATAGRAM, flags, slots, 0, msn, length, length, 7)
    return bytes([REQUEST]) + head + struct.pack("<IIIIHHBBH", dst, src, qkey, chunk, 1, 0, 0, link, dlid) + data


# A tag matching header, and what follows it in the first slot.
def tagged(op, msn, length, tag=1, slots=1, rest=b"\0" * 8, flags=WHOLE):
    return request(SEND, flags, msn, length, slots=slots, data=struct.pack(">BxxxIQ", op, 0xABCD, tag) + rest)


def response(op, msn=0, length=0, flags=0, status=0, value=0, chunk=0):
    return bytes([RESPONSE]) + struct.pack("<BBBBIIQI", op, flags, status, 0, msn, length, value, chunk) + b"z" * 36


def aim(srqn=SRQN, flags=WHOLE):
    return request(AIM, flags, raddr=srqn)


def counts(which, value):
    return bytes([COUNTS, which]) + struct.pack("<Q", value)


def post(kind, length):
    return bytes([POST, kind]) + struct.pack("<H", length)


def how(kind, slots=0, more=0):
    return bytes([kind | slots << 2 | more])


chunk5 = bytes([CHUNK]) + struct.pack("<H", 5 << 2 | 1 << 1 | 1) + b"q"
chunk6 = bytes([CHUNK]) + struct.pack("<H", 6 << 2 | 1 << 1) + b"r"
FILES = {
    "send": how(RC) + request(SEND, WHOLE | SOLICITED | IMM, 0, 20) + request(SEND, WHOLE, 1, 264, slots=5),
    "send-long": how(RC) + chunk5 + request(SEND, FIRST | IN_CHUNK, 0, 32768, 36000, chunk=5) +
                 request(SEND, LAST | IN_CHUNK, 0, 3232, 36000, chunk=5),
    "send-too-long": how(RC, more=SMALL) + request(SEND, WHOLE, 0, 264, slots=5),
    "send-no-receive": how(RC, more=NO_RECEIVES) + request(SEND, WHOLE, 0, 8) + request(SEND, WHOLE, 1, 8) +
                       request(SEND, WHOLE | RESTART, 0, 8),
    "send-invalidate": how(RC) + request(SEND, WHOLE | INV, 0, 8, imm=OPEN),
    "write": how(RC) + request(WRITE, WHOLE, 0, 24, raddr=0x10000, rkey=OPEN) +
             request(WRITE, WHOLE | IMM, 1, 8, raddr=0x19FF8, rkey=OPEN),
    "write-long": how(RC) + chunk5 + request(WRITE, FIRST | IN_CHUNK, 0, 20480, 40960, 0x10000, OPEN, 5) +
                  request(WRITE, LAST | IN_CHUNK, 0, 20480, 40960, 0x10000, OPEN, 5),
    "write-outside": how(RC) + request(WRITE, WHOLE, 0, 24, raddr=0x19FF0, rkey=OPEN),
    "write-foreign": how(RC) + request(WRITE, WHOLE, 0, 8, raddr=0x20000, rkey=LOCAL),
    "write-read-only": how(RC) + request(WRITE, WHOLE, 0, 8, raddr=0x30000, rkey=READ_ONLY),
    "read": how(RC) + request(READ, WHOLE, 0, 0, 40000, 0x10000, OPEN) + counts(2, 1) + bytes([TURN]) + counts(2, 2) +
            request(READ, WHOLE, 1, 0, 32, 0x30000, READ_ONLY),
    "read-two-slots": how(RC, 1) + request(READ, WHOLE, 0, 0, 40000, 0x10000, OPEN) + counts(2, 1) + counts(2, 1),
    "atomics": how(RC) + atomic(CMP_SWAP, 0, 0x10000, OPEN) + atomic(FETCH_ADD, 1, 0x10008, OPEN) +
               atomic(FETCH_ADD, 2, 0x10001, OPEN),
    "atomic-write": how(RC) + request(ATOMIC_WRITE, WHOLE, 0, 8, raddr=0x10000, rkey=OPEN) + request(FLUSH, WHOLE, 1),
    "acks": how(RC) + post(0, 8) + post(1, 200) + counts(0, 2) + counts(1, 2) + post(0, 40000) + counts(0, 5) +
            counts(1, 3),
    "acks-too-many": how(RC) + post(0, 8) + counts(1, 7),
    "taken-back": how(RC) + post(0, 8) + post(0, 8) + counts(0, 2) + counts(0, 1) + post(0, 8),
    "answer-read": how(RC) + post(2, 36) + response(R_READ, 0, 36, LAST) + counts(1, 1),
    "answer-read-long": how(RC) + chunk6 + post(2, 40000) + response(R_READ, 0, 32768, IN_CHUNK, chunk=6) +
                        response(R_READ, 0, 7232, IN_CHUNK | LAST, chunk=6) + counts(1, 1),
    "answer-read-too-long": how(RC) + post(2, 10) + response(R_READ, 0, 36, LAST),
    "answer-atomics": how(RC) + post(3, 8) + post(4, 8) + response(R_ATOMIC, 0, value=5) +
                      response(R_ATOMIC, 1, value=6) + counts(1, 2),
    "answer-rnr": how(RC) + post(0, 8) + counts(0, 1) + response(R_RNR, 0, value=1) + counts(5, 1) + bytes([TURN]) * 4,
    "answer-nak": how(RC) + post(1, 8) + counts(0, 1) + response(R_NAK, 0, status=10),
    "answer-nothing": how(RC) + response(R_READ, 0, 8, LAST),
    "closed": how(RC) + post(0, 8) + counts(3, 0) + request(SEND, WHOLE, 0, 8),
    "uc-send": how(UC) + request(SEND, WHOLE, 0, 20) + request(SEND, FIRST, 1, 20, 40) + request(SEND, WHOLE, 2, 20),
    "uc-write": how(UC, 3) + request(WRITE, WHOLE, 0, 24, raddr=0x10000, rkey=OPEN) +
                request(WRITE, WHOLE, 1, 24, raddr=0x50000, rkey=OPEN),
    "datagram": how(UD) + datagram(0, 16) + datagram(1, 256, slots=5) + datagram(2, 60, WHOLE | GRH | IMM, slots=2) +
                datagram(3, 8, qkey=1) + datagram(4, 8, src=QPN) + datagram(5, 8, dst=0x7777),
    "datagram-chunk": how(UD, 2) + chunk5 + datagram(0, 4096, WHOLE | IN_CHUNK, chunk=5) +
                      datagram(1, 4136, WHOLE | IN_CHUNK | GRH, chunk=5),
    "group": how(UD, 2) + bytes([CHUNK]) + struct.pack("<H", 5 << 2 | 1 << 1 | 1) + b"\xff" +
             datagram(0, 60, WHOLE | IN_CHUNK | GRH, dst=MCAST, chunk=5, dlid=0xC001) +
             datagram(1, 60, WHOLE | IN_CHUNK | GRH, dst=MCAST, chunk=5, dlid=0xC002) +
             datagram(2, 60, WHOLE | IN_CHUNK | GRH, dst=MCAST, chunk=5, link=2) +
             datagram(3, 60, WHOLE | IN_CHUNK, dst=MCAST, chunk=5, dlid=0xC001),
    "tags": how(RC, more=TAGS) + tagged(EAGER, 0, 24) + tagged(EAGER, 1, 16, 2) + tagged(NO_TAG, 2, 24) +
            tagged(FIN, 3, 16) + tagged(EAGER, 4, 24, tag=7 << 40),
    "tags-malformed": how(RC, more=TAGS) + tagged(EAGER, 0, 15),
    "tags-too-long": how(RC, more=TAGS | SMALL) + tagged(EAGER, 0, 264, slots=5),
    "tags-none": how(RC, more=TAGS | NO_RECEIVES) + tagged(EAGER, 0, 24),
    # The rest of the headers is in the second slot, as zeros: nothing is offered.
    "tags-offer": how(RC, 2, TAGS) + tagged(RNDV, 0, 32, slots=2, rest=struct.pack(">Q", 0x1000)) + counts(2, 1) +
                  response(R_READ, 0, 0, LAST) + counts(1, 2) + bytes([TURN]) * 2,
    "tags-half-offer": how(RC, more=TAGS) + tagged(RNDV, 0, 24),
    "xrc": how(LEG, more=XRC) + aim() + request(SEND, WHOLE | IMM, 0, 20) + request(SEND, WHOLE, 1, 264, slots=5) +
           request(WRITE, WHOLE, 2, 24, raddr=0x10000, rkey=OPEN) + atomic(FETCH_ADD, 3, 0x10008, OPEN) +
           request(READ, WHOLE, 4, 0, 32, 0x30000, READ_ONLY) + counts(2, 2) + bytes([STATE, 0]) +
           request(WRITE, WHOLE, 5, 24, raddr=0x10000, rkey=OPEN),
    "xrc-no-aim": how(LEG, more=XRC) + request(SEND, WHOLE, 0, 8),
    "xrc-wrong-aim": how(LEG, more=XRC) + aim() + request(SEND, WHOLE, 0, 8) + aim(QPN) + request(SEND, WHOLE, 1, 8),
    "xrc-malformed-aim": how(LEG, more=XRC) + aim(1 << 32 | SRQN) + aim(flags=FIRST),
    "xrc-aim-inside": how(LEG, 2, XRC) + chunk5 + aim() + request(SEND, FIRST | IN_CHUNK, 0, 32768, 36000, chunk=5) + aim(),
    "xrc-no-receive": how(LEG, 2, XRC | NO_RECEIVES) + aim() + request(SEND, WHOLE, 0, 8) + aim() +
                      request(SEND, WHOLE | RESTART, 0, 8),
    "xrc-acks": how(XRC_SEND, more=XRC) + post(0, 8) + post(1, 200) + counts(0, 3) + counts(1, 2) + post(2, 36) +
                response(R_READ, 2, 36, LAST) + counts(1, 3) + post(0x80, 8) + bytes([TURN]) * 2,
    "xrc-refused": how(XRC_SEND, more=XRC) + post(0, 8) + counts(0, 2) + response(R_NAK, 0, status=9),
    "xrc-request-to-sender": how(XRC_SEND, more=XRC) + request(SEND, WHOLE, 0, 8),
    "sides": how(RC) + bytes([SIDES]) + struct.pack("<HB", 64 + 1024, 255) + b"\xff" * 255 + request(SEND, WHOLE, 0, 8),
    "wire": how(RC, 3) + bytes([WIRE]) + struct.pack("<HB", 0, 200) + b"\x01" * 200 + post(0, 8) + bytes([TURN]) * 2,
    "states": how(RC) + post(0, 300) + bytes([STATE, 1]) + request(SEND, WHOLE, 0, 8) + bytes([STATE, 0]) +
              request(SEND, WHOLE, 1, 8) + post(0, 8),
}

for name, data in FILES.items():
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        f.write(data)
