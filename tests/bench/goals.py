# SPDX-License-Identifier: BSD-2-Clause
"""The measurements by name, and the goals: which of them are compared, and what shall come out."""
import functools
import glob
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

from harness import BUILD, SRCDIR, Unavailable, pair, perftest, pinned, piece, run, tool, ucx, values

KIB, MIB = 1 << 10, 1 << 20
MEASURES = {}


def measure(name, daemon):
    return MEASURES[name](daemon)


def define(name, function):
    MEASURES[name] = function
    return name


ONE_SIDE = re.compile(r"limit: (?!ring|eventfd)|ib_(read|atomic)_|ib_write_bw|own program: (read|atomic)|UCX \w*put_bw|"
                      r"registration|control|create|resident")


def sides(name):
    """How many processors work while that is measured."""
    return 1 if ONE_SIDE.match(name) else 2


def human(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def count(size, most=100000, volume=1 << 30):
    """Iterations: so many, or so many bytes, whichever is less."""
    return max(20, min(most, volume // (size + 1)))


def many(size):
    """The same for bandwidths: enough that the first ones, before the other end's memory is mapped, count for nothing."""
    return count(size, 200000, 12 << 30)


@functools.cache
def cycles_a_ns():
    return 1 / piece([tool("floor"), "cycle"], cpu=0)


# --- ours ----------------------------------------------------------------------------------------------------------------


def lat(program, size, heap=False, events=False):
    """Median of one way (SEND, WRITE) or of one operation (READ, atomics), ns."""
    options = ["-C", "-n", str(5000 if events else count(size, 50000, 1 << 28))]
    if program != "ib_atomic_lat":
        options += ["-s", str(size)]
    if events:
        options += ["-e"]
    # #bytes #iterations t_min t_max t_typical ...: the typical one is the median
    return define(f"{program} {human(size)}{', shared heap' if heap else ''}{', -e' if events else ''}, ns",
                  lambda d: float(perftest(d, program, *options, heap=heap)[4]) / cycles_a_ns())


def rate(program, size, heap=False, post_list=0):
    options = ["-s", str(size), "-n", "2000000", *(["-l", str(post_list)] if post_list else [])]
    # #bytes #iterations peak average rate
    return define(f"{program} {human(size)}{f' -l {post_list}' if post_list else ''}{', shared heap' if heap else ''}, M/s",
                  lambda d: float(perftest(d, program, *options, heap=heap)[4]))


def bandwidth(program, size, heap=False):
    options = ["-s", str(size), "-n", str(many(size)), "-t", "16", "--report_gbits"]
    return define(f"{program} {human(size)}{', shared heap' if heap else ''}, GB/s",
                  lambda d: float(perftest(d, program, *options, heap=heap)[3]) / 8)


def words(what, *options):
    return define(f"own program: {' '.join((what, *options))}, ns",
                  lambda d: piece([tool("words"), what, *options, "--seconds", "0.1"], d.env()))


# --- limits --------------------------------------------------------------------------------------------------------------


def floor(name, *args, unit="ns", value=None):
    size = f" {human(args[0])}" if args else ""
    return define(f"limit: {name}{size}, {unit}",
                  lambda d: piece([tool("floor"), name, *map(str, args)], cpu=0, name=value))


def floor_rate(name, size):
    return floor(name, size, unit="GB/s", value=f"{name}_rate")


# --- peers ---------------------------------------------------------------------------------------------------------------


def ucx_lat(test, tls, size, *options):
    return define(f"UCX {test} {tls} {human(size)}, ns",
                  lambda d: ucx(tls, test, size, count(size, 100000, 1 << 29), *options)[3] * 1000)


def ucx_rate(test, tls, size):
    return define(f"UCX {test} {tls} {human(size)}, M/s", lambda d: ucx(tls, test, size, 1000000)[7] * 1e-6)


def ucx_bandwidth(test, tls, size):
    return define(f"UCX {test} {tls} {human(size)}, GB/s",
                  lambda d: ucx(tls, test, size, many(size))[5] * MIB * 1e-9)


def fi_pingpong(size):
    def value(_):
        command = ["fi_pingpong", "-p", "shm", "-e", "rdm", "-S", str(size), "-I", str(count(size, 50000, 1 << 29))]
        if not shutil.which("fi_pingpong"):
            raise Unavailable("fi_pingpong is not installed")
        out = pair(47592, command, [*command, "localhost"])
        fields = out.splitlines()[-1].split()
        return float(fields[6]) * 1000
    return define(f"libfabric fi_pingpong shm {human(size)}, ns", value)


def peer_lat(name, label, size):
    return define(f"{label} {human(size)}, ns", lambda d: piece([*peer_command(name), "lat", str(size)]))


def peer_rate(name, label, size):
    return define(f"{label} {human(size)}, M/s", lambda d: piece([*peer_command(name), "rate", str(size)]))


def peer_bandwidth(name, label, size):
    return define(f"{label} {human(size)}, GB/s",
                  lambda d: piece([*peer_command(name), "rate", str(size)]) * size * 1e-3)


def socket_rate(kind, size):
    return define(f"{kind} socket {human(size)}, M/s", lambda d: piece([tool("sockets"), kind, "rate", str(size)]))


def socket_lat(kind, size):
    return define(f"{kind} socket, polled, {human(size)}, ns", lambda d: piece([tool("sockets"), kind, "lat", str(size)]))


MPI = ("mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "vader,self", "-np", "2")


# Programs on libraries that a build does not need: compiler, header, Debian's package, libraries.
PEERS = {"fabric": ("cc", "rdma/fabric.h", "libfabric-dev", ["-lfabric"]), "mpi": ("mpicc", "mpi.h", "libopenmpi-dev", [])}
MISSING = {}


def compiles(command, text=None):
    """Whether it does, and what the compiler says."""
    try:
        result = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as e:
        return False, f"{command[0]}: {e.strerror}"
    return result.returncode == 0, result.stdout


def build_peers():
    """Those whose libraries are installed; and why the others are missing, for the table."""
    flags = ["-O2", "-D_GNU_SOURCE", f"-I{SRCDIR}"]
    for name, (compiler, header, package, libs) in PEERS.items():
        if os.path.exists(tool(name)):
            os.unlink(tool(name))
        if not compiles([compiler, "-fsyntax-only", "-x", "c", "-"], f"#include <{header}>\n")[0]:
            MISSING[name] = f"{package} is not installed"
            continue
        source = os.path.join(SRCDIR, "tests/bench", f"{name}.c")
        done, said = compiles([compiler, *flags, "-o", tool(name), source, *libs])
        if not done:
            MISSING[name] = f"{name}.c does not compile"
            print(f"{source} does not compile, though {package} is installed:\n{said}", file=sys.stderr)


def peer_command(name):
    if name in MISSING:
        raise Unavailable(MISSING[name])
    return [*(MPI if name == "mpi" else ()), tool(name)]


FABRIC, OPENMPI = "libfabric shm tagged", "Open MPI ob1/vader"

# --- what is more than one program -------------------------------------------------------------------------------------


def to_and_fro(daemon, *options):
    """Nanoseconds of a message and its answer, where the locks that a domain saves are the C library's."""
    env = dict(daemon.env(), LD_PRELOAD=tool(".libs/libverbsd-posix-mutexes.so"))
    return 2 * piece([tool("words"), "send", *options, "--seconds", "0.1"], env)


def registration(daemon):
    return daemon.beside([tool("fork"), "register", "20000"])["register"]


def control(daemon):
    return daemon.beside([tool("scale"), "control", "20000"])["control_rtt"]


def connect(daemon):
    return daemon.beside([tool("scale"), "connect", "500"])["connect_500"]


def resident(key):
    def value(daemon):
        got = values(run([tool("scale"), "memory", "1000"], daemon.env()))
        return max(got[f"{key}_1000_side{side}"] for side in (0, 1))
    return value


def during(disturb):
    """Latency of two clients while something happens to the daemon, from when it says that it is `ready`; if it happened."""
    def value(daemon):
        ready, stop, failed = threading.Event(), threading.Event(), []

        def disturbance():
            try:
                disturb(daemon, ready, stop)
            except BaseException as e: # raised below: a thread's own is lost
                failed.append(e)
            ready.set()

        thread = threading.Thread(target=disturbance)
        thread.start()
        try:
            ready.wait()
            latency = None if failed else piece([tool("words"), "send", "--seconds", "1.5"], daemon.env())
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]
        return latency
    return value


def nothing(_daemon, ready, stop):
    ready.set()
    stop.wait()


def restart(daemon, ready, stop):
    ready.set()
    if not stop.wait(0.8):
        daemon.stop()
        daemon.start()
    stop.wait()


def serve(daemon, ready, stop):
    """1,000 connected clients, and calls as fast as the daemon answers, from the lowest priority."""
    many = subprocess.Popen(["nice", "-n", "19", tool("scale"), "clients", "1000"], env=daemon.env(),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        line = many.stdout.readline()
        if line != "clients\t1000\tconnected\n":
            raise Unavailable(f"1,000 clients are not connected: {line.strip() or 'they ended'}")
        ready.set()
        while not stop.is_set():
            run(["nice", "-n", "19", tool("scale"), "control", "20000"], daemon.env())
    finally:
        many.communicate() # the end of their stdin is their end
    if many.returncode:
        raise Unavailable(f"1,000 clients: status {many.returncode}")


# Of a message to and fro, in one process, where the library has the C library's mutexes (its own cost little when nobody else
# wants them): posts of the send and of the receive, both locks of the turns that take the message and the acknowledgement, two
# completions put and taken, and the progress lock of the two polls that find something. (Polls that find nothing lock as well,
# but nothing waits for them.)
LOCKS = 12
PLAIN = define("8 B to and fro, POSIX mutexes, ns", lambda d: to_and_fro(d))
DOMAIN = define("8 B to and fro, POSIX mutexes, thread domain, ns", lambda d: to_and_fro(d, "--domain"))
REGISTER = define("registration and deregistration of 4 KiB, us", registration)
CONTROL = define("control round trip, one processor, us", control)
CONNECT = define("create to RTS, both sides, one processor, us", connect)
UNUSED = define("resident memory of a connected QP, never used, KiB", resident("resident_qp"))
USED = define("resident memory of a connected QP, 1 s after use, KiB", resident("resident_used_qp"))
ALONE = define("8 B latency, idle daemon, ns", during(nothing))
RESTARTED = define("8 B latency, daemon restarts, ns", during(restart))
SERVING = define("8 B latency, daemon serves 1,000 others, ns", during(serve))

# --- the goals -----------------------------------------------------------------------------------------------------------


class Row:
    """`ours` against `others` (the best of them), which are names of measurements or functions of medians."""

    def __init__(self, what, ours, others, goal, better="less", kind="ratio", scale=1.0, combine=None):
        self.what, self.ours, self.others, self.goal = what, ours, others, goal
        self.better, self.kind, self.scale, self.combine = better, kind, scale, combine

    def names(self):
        return [self.ours, *self.others]

    def compare(self, values):
        """Of one round: (ours, the other's, its name, ratio or difference), or None when one side was not measured."""
        # A peer that prints 0 did too little for its digits, as on a machine that is not its own: no figure.
        got = [(values[name], name) for name in self.others if values.get(name)]
        ours = values.get(self.ours)
        if self.kind == "bound":
            return None if ours is None else (ours, self.goal, "", ours)
        if ours is None or not got or (self.combine and len(got) < len(self.others)):
            return None
        if self.combine:
            ours, other = self.combine(ours, *(v for v, _ in got))
            name = got[-1][1]
        else:
            other, name = (min if self.better == "less" else max)(got)
        other *= self.scale
        return ours, other, name, ours - other if self.kind == "difference" else ours / other

    def result(self, rounds):
        """The same of several rounds: medians, also of the ratios, since the two of a round were taken one after the other."""
        got = [r for r in map(self.compare, rounds) if r]
        if not got:
            return None
        ours, other, value = (statistics.median(r[i] for r in got) for i in (0, 1, 3))
        names = [r[2] for r in got]
        return (ours, other, max(names, key=names.count), value,
                value <= self.goal if self.better == "less" else value >= self.goal)


def at_most(what, ours, others, goal, **more):
    return Row(what, ours, others, goal, **more)


def at_least(what, ours, others, goal, **more):
    return Row(what, ours, others, goal, better="more", **more)


SIZES = (64 * KIB, MIB, 16 * MIB)
ROWS = []
for size in (8, 64):
    ours = lat("ib_send_lat", size)
    ROWS.append(at_most(f"SEND {human(size)}, latency; UCX tag", ours, [ucx_lat("tag_lat", "posix", size)], 0.8))
    ROWS.append(at_most(f"SEND {human(size)}, latency; slot ring", ours, [floor("ring")], 2.0))
ROWS += [
    at_most("SEND 4 KiB, latency; best peer", lat("ib_send_lat", 4 * KIB),
            [ucx_lat("tag_lat", "posix", 4 * KIB), ucx_lat("tag_lat", "posix,cma", 4 * KIB), fi_pingpong(4 * KIB),
             peer_lat("fabric", FABRIC, 4 * KIB)], 0.9),
    at_most("WRITE 8 B, map, latency; UCX put", lat("ib_write_lat", 8, heap=True),
            [ucx_lat("ucp_put_lat", "posix", 8)], 1.2),
    at_most("WRITE 8 B, map (verbsd_alloc_mr), latency; UCX put", words("write"), [ucx_lat("ucp_put_lat", "posix", 8)], 1.2),
    at_most("WRITE 8 B, cma, latency; UCX put", lat("ib_write_lat", 8),
            [ucx_lat("put_lat", "cma", 8, "-d", "memory", "-x", "cma", "-D", "zcopy")], 0.8),
    at_most("READ 8 B, map, latency; copy and two fences", lat("ib_read_lat", 8, heap=True), [floor("fences")], 100,
            kind="difference"),
    at_most("READ 8 B, map (verbsd_alloc_mr), latency; copy and two fences", words("read"), [floor("fences")], 100,
            kind="difference"),
    at_most("READ 8 B, cma, latency; process_vm_readv", lat("ib_read_lat", 8), [floor("vm_read", 8)], 1.0),
    at_most("atomic, map, latency; locked add", lat("ib_atomic_lat", 8, heap=True), [floor("add")], 100,
            kind="difference"),
    at_most("atomic, map (verbsd_alloc_mr), latency; locked add", words("atomic"), [floor("add")], 100, kind="difference"),
    at_least("SEND 64 B, rate; UCX tag", rate("ib_send_bw", 64), [ucx_rate("tag_bw", "posix", 64)], 1.5),
    at_least("SEND 64 B, rate; best peer", rate("ib_send_bw", 64),
             [ucx_rate("tag_bw", "posix", 64), ucx_rate("ucp_am_bw", "posix", 64), peer_rate("fabric", FABRIC, 64),
              peer_rate("mpi", OPENMPI, 64), socket_rate("unix", 64), socket_rate("tcp", 64)], 1.2),
    at_least("WRITE 64 B, map, lists of 16, rate; UCX put", rate("ib_write_bw", 64, heap=True, post_list=16),
             [ucx_rate("ucp_put_bw", "posix", 64)], 0.7),
]
for program in "ib_write_bw", "ib_read_bw":
    for size in SIZES:
        verb = "WRITE" if program == "ib_write_bw" else "READ"
        ours = bandwidth(program, size, heap=True)
        ROWS.append(at_least(f"{verb} {human(size)}, map, bandwidth; memcpy", ours, [floor_rate("memcpy", size)], 0.9))
        ROWS.append(at_least(f"{verb} {human(size)}, map, bandwidth; UCX put", ours,
                             [ucx_bandwidth("ucp_put_bw", "posix", size)], 1.0))
        ROWS.append(at_least(f"{verb} {human(size)}, cma, bandwidth; process_vm", bandwidth(program, size),
                             [floor_rate("vm_write" if verb == "WRITE" else "vm_read", size)], 0.95))
for size in SIZES:
    ROWS.append(at_least(f"SEND {human(size)}, bandwidth; best peer", bandwidth("ib_send_bw", size),
                         [ucx_bandwidth("tag_bw", "posix,cma", size), peer_bandwidth("fabric", FABRIC, size)], 0.95))
ROWS += [
    at_least(f"thread domain, time saved; {LOCKS} locks", PLAIN, [DOMAIN, floor("mutex")], 0.8,
             combine=lambda plain, domain, mutex: (plain - domain, LOCKS * mutex)),
    at_most("SEND 8 B, events, latency; eventfd", lat("ib_send_lat", 8, events=True), [floor("eventfd")], 1.2),
    at_most("SEND 8 B, latency with 10,000 idle QPs; with none", words("send", "--idle", "10000"), [words("send")], 1.1),
    # Calls: one of each kind. A rate of ten times is a tenth of the time.
    at_most("registration of 4 KiB; two control round trips", REGISTER, [CONTROL], 0.1, scale=2),
    # Create, INIT, RTR, RTS, on both sides.
    at_most("connect; eight control round trips", CONNECT, [CONTROL], 2.0, scale=8),
    at_most("resident memory of a QP, never used", UNUSED, [], 16, kind="bound"),
    at_most("resident memory of a QP, 1 s after use", USED, [], 16, kind="bound"),
    at_most("SEND 8 B, latency while the daemon restarts; alone", RESTARTED, [ALONE], 1.05),
    at_most("SEND 8 B, latency while the daemon serves 1,000; alone", SERVING, [ALONE], 1.05),
    # Beside the goals: the other ways to the same message cost about the same.
    at_most("SEND 8 B, latency, thread domain; slot ring", words("send", "--domain"), [floor("ring")], 2.0),
    at_most("SEND 8 B, latency, SRQ; receive queue", words("send", "--srq"), [words("send")], 1.1),
    at_most("SEND 8 B, latency, extended CQ; ibv_poll_cq", words("send", "--extended"), [words("send")], 1.1),
    at_most("SEND 8 B, latency, ibv_post_send; ibv_wr_*", words("send", "--list"), [words("send")], 1.1),
    at_most("SEND 64 B, latency, own program; slot ring", words("send", "--size", "64"), [floor("ring")], 2.0),
    # And what programs without RDMA have.
    at_most("SEND 8 B, latency; sockets", lat("ib_send_lat", 8), [socket_lat("unix", 8), socket_lat("tcp", 8)], 1.0),
    at_most("SEND 8 B, latency; Open MPI", lat("ib_send_lat", 8), [peer_lat("mpi", OPENMPI, 8)], 1.0),
]
