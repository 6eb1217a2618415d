#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
A client that does with real devices what no library would: it speaks the protocol itself.

usage: native_hostile.py SOCKET ACTION [ARG]    Prints what came of it, a word or an errno's name, and ends with status 0.
"""
import array
import ctypes
import errno
import os
import socket
import struct
import sys
import threading

HEADER = struct.Struct("<IHHIIHHI")
HELLO, DEVICE_LIST, NATIVE_OPEN, NATIVE_CLOSE = 1, 3, 56, 57
NATIVE_REGION, NATIVE_REG, NATIVE_RELEASE = 58, 59, 60


class Session:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.serial = 0
        self.call(HELLO, b"\x08\x01\x10\x01\x18\x00")

    def call(self, opcode, body=b""):
        """Status and fds of the answer."""
        self.serial += 1
        self.socket.send(HEADER.pack(0x31445356, 1, opcode, self.serial, len(body), 0, 0, 0) + body)
        answer, control, _, _ = self.socket.recvmsg(70000, socket.CMSG_SPACE(16))
        fds = array.array("i")
        for level, kind, data in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data)
        return HEADER.unpack(answer[: HEADER.size])[7], list(fds)

    def open(self, node, rdwr=False):
        node = node.encode()
        status, fds = self.call(NATIVE_OPEN, bytes([0x0A, len(node)]) + node + bytes([0x10, rdwr]))
        if status:
            raise OSError(status, os.strerror(status))
        return fds


def name_of(error):
    return errno.errorcode.get(error.errno, str(error.errno))


def open_node(fd):
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)


def try_open(fd):
    try:
        os.close(open_node(fd))
        return "opened"
    except OSError as e:
        return name_of(e)


def show(gate, fd):
    socket.send_fds(socket.socket(fileno=os.dup(gate)), [b"x"], [fd])


def gate_ends(gate):
    """Waits until the daemon is done with it."""
    end = socket.socket(fileno=os.dup(gate))
    try:
        return "ended" if end.recv(1) == b"" else "spoke"
    except OSError as e:
        return name_of(e)


def twice(session):
    """A node that was opened and shown is not opened again."""
    path, gate = session.open("uverbs0")
    fd = open_node(path)
    show(gate, fd)
    gate_ends(gate)
    # Its answer may still be on its way to the daemon, which is asked something in turn.
    for _ in range(1000):
        session.call(DEVICE_LIST)
        said = try_open(path)
        if said != "opened":
            break
    return said


def kept(session, go):
    """A node that is kept until somebody says so."""
    path, _gate = session.open("uverbs0")
    print("offered", flush=True)
    with open(go, encoding="ascii") as fifo:
        fifo.read()
    return try_open(path)


def foreign(session, what):
    """Another file in the place of the one that was given."""
    path, gate = session.open("uverbs0")
    if what == "own":
        # A device file, of another node: the one of another session of ours.
        other, _ = Session(sys.argv[1]).open("uverbs0")
        fd = open_node(other)
    else:
        fd = os.open(what, os.O_RDWR | os.O_CLOEXEC)
    show(gate, fd)
    gate_ends(gate)
    for _ in range(1000):
        session.call(DEVICE_LIST)
        said = try_open(path)
        if said != "opened":
            break
    return said


def hanging(session):
    """A socket whose close() lingers for minutes: nobody reads what it has sent."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 300))
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(65536))
    except BlockingIOError:
        pass
    path, gate = session.open("uverbs0")
    show(gate, client.fileno())
    client.detach()
    # Our number for it is gone: the gate has the last one, and hangs in close() until it is killed.
    os.close(gate)
    for _ in range(1000):
        status, _ = session.call(DEVICE_LIST)
        said = try_open(path)
        if status or said != "opened":
            break
    peer.close()
    return said


class Silent:
    """A file system of our own, in a namespace of our own, that answers what it takes to open a file of it, and no more."""

    ATTR = struct.Struct("<6Q10I")
    NEVER = (18, 25)  # release, flush

    def __init__(self, folder):
        libc = ctypes.CDLL(None, use_errno=True)
        uid, gid = os.getuid(), os.getgid()
        if libc.unshare(0x10000000 | 0x00020000):
            raise OSError(ctypes.get_errno(), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
        self.dev = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.dev},rootmode=40000,user_id=0,group_id=0"
        if libc.mount(b"silent", folder.encode(), b"fuse", 6, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")
        self.pending, self.over, self.lock = [], False, threading.Lock()
        threading.Thread(target=self.serve, daemon=True).start()

    def attr(self, node):
        mode = 0o40755 if node == 1 else 0o100666
        return self.ATTR.pack(node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, unique, body=b"", error=0):
        try:
            os.write(self.dev, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
        except OSError:
            pass

    def serve(self):
        while True:
            try:
                request = os.read(self.dev, 1 << 18)
            except OSError:
                return
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            with self.lock:
                self.one(opcode, unique, node)

    def one(self, opcode, unique, node):
        if opcode == 26:
            self.answer(unique, struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 16, 12, 1 << 16, 1, 0, 0, *[0] * 8))
        elif opcode == 1:
            self.answer(unique, struct.pack("<4Q2I", 2, 1, 3600, 3600, 0, 0) + self.attr(2))
        elif opcode == 3:
            self.answer(unique, struct.pack("<Q2I", 3600, 0, 0) + self.attr(node))
        elif opcode == 14:
            self.answer(unique, struct.pack("<Q2I", 1, 0, 0))
        elif opcode in self.NEVER and not self.over:
            self.pending.append(unique)
        elif opcode in self.NEVER:
            self.answer(unique)
        elif opcode not in (2, 42):
            self.answer(unique, error=errno.ENOSYS)

    def end(self):
        with self.lock:
            self.over = True
            for unique in self.pending:
                self.answer(unique)


def fuse(session, quit_at):
    """Files whose close() is never answered, one after the other, until the daemon takes no more."""
    silent = Silent("/mnt")
    print("ready", flush=True)
    said, fds = "", []
    while said != "EBUSY":
        try:
            path, gate = session.open("uverbs0")
            fds.append(os.open("/mnt/file", os.O_RDWR | os.O_CLOEXEC))
            show(gate, fds[-1])
            # Its other end stays open: who has it hangs.
            os.close(gate)
            said = "opened"
            while said == "opened":
                session.call(DEVICE_LIST)
                said = try_open(path)
            os.close(path)
        except OSError as e:
            said = name_of(e)
            # Many in a short time: he tries again, and they hang meanwhile.
            if said == "EAGAIN":
                continue
        print(said, flush=True)
    with open(quit_at, encoding="ascii") as fifo:
        fifo.read()
    silent.end()
    # While somebody answers: the end of this process would wait for itself.
    for fd in fds:
        os.close(fd)
    return "ended"


def odd_order(session):
    """The session goes before the file, the node before the report, the file before the session."""
    path, gate = session.open("uverbs0")
    fd = open_node(path)
    os.close(path)
    show(gate, fd)
    os.close(fd)
    other = Session(sys.argv[1])
    path, gate = other.open("uverbs0")
    fd = open_node(path)
    other.socket.close()
    os.close(gate)
    os.close(fd)
    (fd,) = session.open("uverbs0", True)
    session.socket.close()
    os.close(fd)
    return "done"


def closes(session):
    """What is no context of its own is not closed."""
    status, _ = session.call(NATIVE_CLOSE, b"\x08\x07")
    return errno.errorcode.get(status, str(status))


MEBIBYTE = b"\x30\x80\x80\x40"


def region(session, fill=True, native=1):
    """A region of a mebibyte for the first device of that session."""
    status, fds = session.call(NATIVE_REGION, bytes([0x08, native, 0x10, 3, 0x18, 0]) + MEBIBYTE)
    if status:
        raise OSError(status, os.strerror(status))
    if fill:
        os.pwrite(fds[0], bytes(1 << 20), 0)
    return fds[0]


def reg(session, handle=1, pd=0):
    status, _ = session.call(NATIVE_REG, bytes([0x08, handle, 0x10, pd]))
    return errno.errorcode.get(status, str(status))


def region_pd(session):
    """A file in which nobody has made a PD."""
    session.open("uverbs0", True)
    region(session)
    return reg(session, pd=5)


def region_empty(session):
    """Pages that are not there, or not any more."""
    session.open("uverbs0", True)
    region(session, False)
    first = reg(session)
    memory = region(session)
    libc = ctypes.CDLL(None, use_errno=True)
    # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    if libc.fallocate(memory, 3, ctypes.c_long(4096), ctypes.c_long(4096)):
        return name_of(OSError(ctypes.get_errno(), ""))
    return first + " " + reg(session, 2)


def region_foreign(session):
    """Another session's device, and its region."""
    session.open("uverbs0", True)
    region(session)
    other = Session(sys.argv[1])
    said = reg(other)
    try:
        region(other)
        return "made"
    except OSError as e:
        return said + " " + name_of(e)


def main():
    session = Session(sys.argv[1])
    functions = (twice, kept, foreign, hanging, fuse, odd_order, closes, region_pd, region_empty, region_foreign)
    actions = {f.__name__: f for f in functions}
    try:
        print(actions[sys.argv[2]](session, *sys.argv[3:]))
    except OSError as e:
        print(name_of(e))


main()
