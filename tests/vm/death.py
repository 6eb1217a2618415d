#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
How long after kill -9 of a program the RDMA devices have what they had before it: milliseconds.

usage: death.py COMMAND...    The command says "ready" when it has what it wants, and then waits.
"""
import os
import signal
import socket
import struct
import subprocess
import sys
import time

NETLINK_RDMA = 20
RES_GET = 5 << 10 | 9  # RDMA_NL_NLDEV, RDMA_NLDEV_CMD_RES_GET
REQUEST_DUMP, DONE = 0x301, 3


class Kernel:
    """Its counts of all objects of all devices, as it sends them: to be compared, not read."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA)
        self.serial = 0

    def counts(self):
        self.serial += 1
        self.socket.send(struct.pack("=IHHII", 16, RES_GET, REQUEST_DUMP, self.serial, 0))
        said = []
        while True:
            data = self.socket.recv(1 << 16)
            while data:
                length, kind, _, _, _ = struct.unpack_from("=IHHII", data)
                if kind == DONE:
                    return said
                said.append(data[16:length])
                data = data[(length + 3) & ~3 :]


def main():
    kernel = Kernel()
    before = kernel.counts()
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE) as program:
        if program.stdout.readline() != b"ready\n":
            sys.exit("it is not ready")
        if kernel.counts() == before:
            sys.exit("it has nothing")
        start = time.monotonic()
        os.kill(program.pid, signal.SIGKILL)
        while kernel.counts() != before:
            if time.monotonic() - start > 60:
                sys.exit("it is not gone")
            time.sleep(0.001)  # between two looks, so that others have a turn
        print(f"{(time.monotonic() - start) * 1000:.1f}")


main()
