# SPDX-License-Identifier: BSD-2-Clause
"""What the benchmarks stand on: a daemon, programs on their processors, and samples that nobody disturbed."""
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.environ.get("VERBSD_BUILD", os.getcwd())
SRCDIR = os.environ.get("VERBSD_SRCDIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
ROOT = os.environ.get("VERBSD_ROOT")
LIMIT = 300
TICK = 1 / os.sysconf("SC_CLK_TCK")


class Unavailable(Exception):
    """A peer that is not installed, or refuses to run: its samples are missing, and the table says so."""


def tool(name):
    return os.path.join(BUILD, "tests/bench", name)


def installed(kind, name):
    if ROOT:
        return os.path.join(ROOT, {"lib": "lib", "sbin": "sbin", "bin": "bin"}[kind], name)
    return os.path.join(BUILD, ".libs" if kind == "lib" else "", name)


def pinned(cpu, command):
    return ["taskset", "-c", str(cpu), *command] if os.cpu_count() > 1 else list(command)


def ended(process, command):
    """Output of a client that may not fail."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Unavailable(f"{command[0]} does not end")
    if process.returncode:
        raise Unavailable(f"{err.strip()[-100:] or os.path.basename(command[0])} (status {process.returncode})")
    return out


def run(command, env=None, cpu=None):
    command = pinned(cpu, command) if cpu is not None else list(command)
    try:
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as e:
        raise Unavailable(f"{command[0]}: {e.strerror}")
    return ended(process, command)


def values(text):
    return {f[0]: float(f[1]) for f in (line.split("\t") for line in text.splitlines()) if len(f) == 3}


def piece(command, env=None, cpu=None, name=None):
    """The first value that a program of ours prints, or the named one."""
    got = values(run(command, env, cpu))
    return got[name] if name else next(iter(got.values()))


class Daemon:
    def __init__(self, folder):
        self.folder = folder
        self.socket = os.path.join(folder, "verbsd.sock")
        self.admin = os.path.join(folder, "admin.sock")
        self.start()

    def start(self):
        r, w = os.pipe()
        with open(os.path.join(self.folder, "daemon.log"), "a") as log:
            self.process = subprocess.Popen([installed("sbin", "verbsd"), "--socket", self.socket, "--admin-socket",
                                             self.admin, "--ready-fd", str(w)], pass_fds=[w], stderr=log)
        os.close(w)
        if not os.read(r, 1):
            sys.exit("the daemon did not start")
        os.close(r)

    def env(self):
        return dict(os.environ, LD_PRELOAD=installed("lib", "libverbsd.so"), VERBSD_SOCKET=self.socket)

    def beside(self, command):
        """Values of a client on the daemon's processor, where nothing has to be woken on another one."""
        every = os.sched_getaffinity(self.process.pid)
        os.sched_setaffinity(self.process.pid, {0})
        try:
            return values(run(command, self.env(), cpu=0))
        finally:
            os.sched_setaffinity(self.process.pid, every)

    def seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * TICK

    def stop(self):
        self.process.terminate()
        if self.process.wait(LIMIT):
            sys.exit("the daemon ended with an error")


# --- servers and clients ---------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listening(port):
    hexa = f":{port:04X}"
    for name in "/proc/net/tcp", "/proc/net/tcp6":
        with open(name) as f:
            if any(line.split()[1].endswith(hexa) and line.split()[3] == "0A" for line in list(f)[1:]):
                return True
    return False


def pair(port, server, client, env=None):
    """The client's output; server on processor 1, client on processor 0. No more of the server than that it listens."""
    try:
        process = subprocess.Popen(pinned(1, server), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as e:
        raise Unavailable(f"{server[0]}: {e.strerror}")
    try:
        end = time.monotonic() + 20
        while not listening(port):
            if process.poll() is not None or time.monotonic() > end:
                raise Unavailable(f"{' '.join(server)}: it does not listen")
            time.sleep(0.005)
        out = run(client, env, cpu=0)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            pass # some wait for another client
        return out
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


def perftest(daemon, program, *options, heap=False):
    """The fields of perftest's last row."""
    if not shutil.which(program):
        raise Unavailable(f"{program} is not installed")
    port = free_port()
    command = [program, "-F", "-p", str(port), *options]
    env = daemon.env()
    if heap:
        env = {k: v for k, v in env.items() if k != "LD_PRELOAD"}
        command = [installed("bin", "verbsctl"), "run", "--shared-heap", "-s", daemon.socket, "--", *command]
    out = pair(port, command, [*command, "127.0.0.1"], env)
    rows = [line.split() for line in out.splitlines() if re.match(r"^ *\d+ +\d+ +[\d.]+", line)]
    if not rows:
        raise Unavailable(f"{program} printed no figure")
    return rows[-1]


def ucx(tls, test, size, n, *options):
    """The fields of ucx_perftest's last line of CSV: iterations, then median, average and overall of each quantity."""
    port = free_port()
    env = dict(os.environ, UCX_TLS=tls)
    out = pair(port, ["ucx_perftest", "-p", str(port), *options],
               ["ucx_perftest", "-p", str(port), "localhost", *options, "-t", test, "-s", str(size), "-n", str(n), "-w",
                str(n // 10), "-f", "-v"], env)
    fields = out.splitlines()[-1].split(",") if out.strip() else []
    if not fields or fields[0].strip() != str(n):
        raise Unavailable(f"ucx_perftest {test} over {tls} printed no figure")
    return [float(f) for f in fields]


# --- samples -----------------------------------------------------------------------------------------------------------


def busy():
    """Seconds that all processors were used, and that the host took."""
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return (v[0] + v[1] + v[2] + v[5] + v[6]) * TICK, v[7] * TICK


class Watch:
    """The share of all processors that others used, or the host took, between two moments."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.last = self.now()

    def now(self):
        t = os.times()
        own = t.user + t.system + t.children_user + t.children_system
        used, stolen = busy()
        return time.monotonic(), used - own - self.daemon.seconds(), stolen

    def percent(self):
        before, self.last = self.last, self.now()
        wall = (self.last[0] - before[0]) * os.cpu_count()
        # The kernel counts in ticks: a short time says little, and that little may be negative.
        others = max(0, self.last[1] - before[1]) + max(0, self.last[2] - before[2])
        return 100 * others / wall if wall > 0 else 0.0


class Host:
    """
    What the host gives from moment to moment: the price of a line between the processors, and the speed of each, which
    falls to a half while a neighbour has the other half of its core. It knows all states that it has seen.
    """

    SEEN = 400
    WORK = {1: (1,), 2: (1, 2)} # of those that take part: the columns of a state

    def __init__(self):
        self.seen = []
        for _ in range(60):
            self.look()

    def look(self):
        """
        The state now, in about 20 ms: price of a line, then ns of the same work on both processors. Of one processor alone
        there is nothing to ask: two that spin for each other would take it in turns, a slice of time each.
        """
        got = values(run([tool("floor"), "state"])) if os.cpu_count() > 1 else {"flag": 1, "work 0": 1, "work 1": 1}
        self.seen = [*self.seen[-self.SEEN:], (got["flag"], got["work 0"], got["work 1"])]
        return self.seen[-1]

    def usual(self):
        return statistics.median(line for line, *_ in self.seen)

    def rank(self, state, sides, line):
        """The share of moments that were better for so many processors; 1 if lines have another price than `line`."""
        if sides == 2 and not 0.8 <= state[0] / line <= 1.25:
            return 1.0
        work = sum(state[i] for i in self.WORK[sides])
        return sum(sum(s[i] for i in self.WORK[sides]) < 0.95 * work for s in self.seen) / len(self.seen)


class Samples:
    """Of a row, by name: a value for each round, None where there was none, and how much it was disturbed."""

    GOOD, FAIR = 0.25, 0.5 # ranks of moments in which a sample is begun, and of those that may be around it

    def __init__(self, daemon, host, calm, tries, patience):
        self.daemon, self.host, self.calm, self.tries, self.patience = daemon, host, calm, tries, patience
        self.got, self.missing = {}, {}
        self.line = None

    def begin(self):
        """A new round: the samples of one are taken while lines have one price."""
        self.line = None

    def wait_for_calm(self):
        watch = Watch(self.daemon)
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            time.sleep(0.25)
            if watch.percent() <= self.calm:
                return

    def wait_for_host(self, sides):
        """A moment among the better ones, or the last one before patience ends: its rank."""
        end = time.monotonic() + self.patience
        while True:
            rank = self.host.rank(self.host.look(), sides, self.line or self.host.usual())
            if rank <= self.GOOD or time.monotonic() >= end:
                return rank

    def take(self, name, measure, sides):
        """
        One sample: the first that nobody disturbed, else the least disturbed one of `tries`. Others on this machine disturb,
        and neighbours on the host: what is compared shall have been measured in moments of one kind.
        """
        best = None
        for _ in range(self.tries):
            rank = self.wait_for_host(sides)
            line = self.line or (self.host.seen[-1][0] if sides == 2 else None)
            watch = Watch(self.daemon)
            try:
                value = measure()
            except Unavailable as e:
                self.missing[name] = str(e)
                self.got.setdefault(name, []).append((None, 0.0, 0.0))
                return
            others = watch.percent()
            rank = max(rank, self.host.rank(self.host.look(), sides, line))
            if best is None or (others > self.calm, rank, others) < (best[1] > self.calm, best[2], best[1]):
                best, of_best = (value, others, rank), line
            if others <= self.calm and rank <= self.FAIR:
                break
            if others > self.calm:
                self.wait_for_calm()
        self.line = of_best
        self.missing.pop(name, None)
        self.got.setdefault(name, []).append(best)

    def rounds(self):
        """
        The rounds that count, as values by name, and the most that others had in one of them: those that nobody disturbed, or,
        where these are fewer than three, the three least disturbed ones.
        """
        every = [({name: sample[0] for name, sample in zip(self.got, taken)}, max(others for _, others, _ in taken),
                  max(rank for *_, rank in taken)) for taken in zip(*self.got.values())]
        every.sort(key=lambda r: (r[1] > max(10, self.calm), r[2]))
        good = sum(others <= max(10, self.calm) and rank <= self.FAIR for _, others, rank in every)
        counted = every[:max(good, 3)]
        return [values for values, *_ in counted], max((others for _, others, _ in counted), default=0)

    def lines(self):
        """Name, median and range of all rounds, and each value."""
        for name, taken in self.got.items():
            got = [v for v, *_ in taken if v is not None]
            if got:
                yield (name, statistics.median(got), min(got), max(got), len(got),
                       " ".join("-" if v is None else f"{v:.6g}({others:.0f}%,{rank:.2f})" for v, others, rank in taken))


def scratch():
    return tempfile.mkdtemp(prefix="verbsd-bench.")
