#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
#
# Every attack of hostile.c on a private daemon, while a client that behaves makes control calls beside it: that one is
# answered within one second throughout, but for what both waited for a processor. Afterwards the daemon has what it had
# before, and said in its log, briefly, who was refused what and why.
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.environ["VERBSD_ROOT"]
BUILD = os.environ["VERBSD_BUILD"]
FULL = os.environ.get("VERBSD_LENGTH") == "full"
SANITIZER = os.environ.get("VERBSD_SANITIZER", "")
HOSTILE = os.path.join(BUILD, "tests/e2e/hostile")
LIMIT = 300  # seconds; only a hang reaches it
SERVED_WITHIN = 1.0  # seconds: the bound that is promised
LOG_LINES = 10  # a minute and domain
seed = int(os.environ.get("VERBSD_SEED", random.randrange(1 << 32) if FULL else 1))  # the same in each run of CI length
results = []
folder = tempfile.mkdtemp(prefix="verbsd-hostile.")
os.chmod(folder, 0o777)

LIMITED = """[limits]
contexts = 200
pds = 300
tds = 300
parent_domains = 300
mrs = 300
mws = 300
cqs = 300
srqs = 300
qps = 200
ahs = 300
regions = 250
region_bytes = 1G
persistent_bytes = 64M
"""


def report(ok, name, detail=""):
    results.append(bool(ok))
    print(f"{'ok' if ok else 'not ok'} {len(results)} - {name}", flush=True)
    if not ok:
        for line in str(detail).splitlines():
            print(f"# {line}")


def skip(name, why):
    results.append(True)
    print(f"ok {len(results)} - {name} # SKIP {why}", flush=True)


def demote():
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


class Daemon:
    def __init__(self, config=None):
        self.dir = tempfile.mkdtemp(dir=folder)
        os.chmod(self.dir, 0o777)
        self.socket = os.path.join(self.dir, "verbsd.sock")
        self.admin = os.path.join(self.dir, "admin.sock")
        self.log = open(os.path.join(self.dir, "log"), "w")
        path = os.path.join(self.dir, "verbsd.conf")
        with open(path, "w") as f:
            f.write(config or "")
        env = dict(os.environ)
        # What was freed is kept back by the sanitizer, which is not what is measured here.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
        r, w = os.pipe()
        self.process = subprocess.Popen(
            [f"{ROOT}/sbin/verbsd", "--socket", self.socket, "--admin-socket", self.admin, "--config", path,
             "--ready-fd", str(w)], stdout=self.log, stderr=self.log, pass_fds=[w], preexec_fn=demote, env=env)
        os.close(w)
        ready = os.read(r, 1)
        os.close(r)
        if not ready:
            sys.exit("Bail out! the daemon did not start: " + self.text())

    def text(self):
        with open(self.log.name, errors="backslashreplace") as f:
            return f.read()

    def alive(self):
        return self.process.poll() is None

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def memory(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def stop(self):
        self.process.terminate()
        return self.process.wait(LIMIT)


def sched(pid):
    """Seconds that the first thread of a process ran, and that it was ready to run and had no processor."""
    try:
        with open(f"/proc/{pid}/schedstat") as f:
            ran, waited = f.read().split()[:2]
        return int(ran) / 1e9, int(waited) / 1e9
    except (OSError, ValueError):
        return 0.0, 0.0


class Polite:
    """The client that behaves: as root where that is possible, so that another user's quotas are not its own."""

    def __init__(self, daemon):
        self.process = subprocess.Popen([HOSTILE, "--socket", daemon.socket, "polite"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            sys.exit("Bail out! not even the client that behaves is served")
        self.daemon = daemon
        self.times = self.clock()
        self.longest = 0.0
        self.late = False  # what it was asked last: it was served too late, and nothing else was wrong
        self.meanwhile = ""
        self.calls = 0

    def clock(self):
        ran, waited = sched(self.daemon.process.pid)
        return ran, waited + sched(self.process.pid)[1]

    def ask(self, meanwhile):
        """What happened since it was last asked: the longest call, and a description of what was wrong."""
        self.late = False
        try:
            self.process.stdin.write("?\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        match = re.match(r"([\d.]+) (\d+) (.*); (.*)\n", line)
        if not match:
            return "the client that behaves is gone"
        longest = float(match[1])
        before, self.times = self.times, self.clock()
        ran, waited = self.times[0] - before[0], self.times[1] - before[1]
        if longest > self.longest:
            self.longest = longest
            self.meanwhile = f"{match[3]} during {meanwhile}"
        self.calls += int(match[2])
        # A loaded machine may have both of them wait. That is no excuse for a daemon that had so much to do.
        if longest > SERVED_WITHIN and (longest - waited > SERVED_WITHIN or ran > SERVED_WITHIN):
            self.late = True
            return (f"{match[3]} of another client took {longest:.3f} s; the daemon ran for {ran:.3f} s meanwhile, and both "
                    f"waited {waited:.3f} s for a processor")
        # With one user for all, the quotas are shared.
        if match[4] and os.getuid() == 0:
            return f"another client: {match[4]}"
        return ""

    def stop(self):
        self.process.stdin.close()
        self.process.wait(LIMIT)
        self.process.stdout.close()


def wait_until(condition, limit=60):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)  # between two looks
    return True


def attack(daemon, name, number, *options):
    command = [HOSTILE, "--socket", daemon.socket, "--admin", daemon.admin, "--daemon", str(daemon.process.pid),
               "--seed", str(number), "--scale", "20" if FULL else "1", *options, name]
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="backslashreplace", timeout=LIMIT * (10 if FULL else 1), preexec_fn=demote)
        return run.returncode, run.stdout
    except subprocess.TimeoutExpired as e:
        return None, f"hangs: {e.stdout}"


def attack_beside(daemon, polite, name, number, *options):
    """An attack, and what the client that behaves has to say of it. A whole machine that stands still for a second is no work of
    the attacker's: what that one brings about comes again."""
    for _ in range(3):
        status, out = attack(daemon, name, number, *options)
        trouble = polite.ask(name)
        if status != 0 or not polite.late:
            break
        print(f"# {name}: {trouble}", flush=True)
    return status, out, trouble


def attack_all(daemon, polite, names, label, *options):
    for i, name in enumerate(names):
        status, out, trouble = attack_beside(daemon, polite, name, seed + i, *options)
        match = re.search(r"^skip: (.*)", out, re.M)
        lines = [l for l in out.splitlines() if l.startswith(name + ":")]
        title = f"{label}{lines[0] if lines else name}"
        if status == 0 and not trouble and daemon.alive() and match:
            skip(f"{label}{name}", match[1])
            continue
        report(status == 0 and not trouble and daemon.alive(), title,
               f"status {status}\n{out}\n{trouble}\n{daemon.text()[-2000:] if not daemon.alive() else ''}")
        if not daemon.alive():
            return False
    return True


def log_is_brief(daemon, minutes):
    """Lines about clients: who, what and why; few; nothing that a client chose can forge one."""
    text = daemon.text()
    lines = [l for l in text.splitlines() if "client " in l or "refused pid" in l]
    # Two users and two sockets are four domains; a line about dropped lines comes with the next one.
    most = 4 * 2 * LOG_LINES * minutes
    report(0 < len(lines) <= most, f"the log is brief: {len(lines)} lines about clients", f"more than {most}")
    bad = [l for l in lines if "lines were not written" not in l and
           not re.search(r"client \d+ \(pid \d+, uid \d+\): \w.*: \w|refused pid \d+, uid \d+: \w", l)]
    report(not bad, "each line has the process, what it wanted and why not", "\n".join(bad[:10]))
    report(all(32 <= ord(c) < 127 or c == "\n" for c in text), "nothing in the log but printable characters")


def unlimited(names):
    daemon = Daemon()
    polite = Polite(daemon)
    before = time.monotonic()
    try:
        fds = daemon.fds()
        if not attack_all(daemon, polite, names, ""):
            return
        report(wait_until(lambda: daemon.fds() <= fds), "the daemon's fds are what they were",
               f"{daemon.fds()}, were {fds}")
        memory = daemon.memory()
        bad = []
        for i, name in enumerate(names):
            status, out, trouble = attack_beside(daemon, polite, name, seed + 1000 + i)
            if status != 0 or not daemon.alive():
                bad.append(f"{name}: status {status}\n{out}")
            if trouble:
                bad.append(f"{name}: {trouble}")
        report(not bad, "all of it again with another seed", "\n".join(bad))
        wait_until(lambda: daemon.fds() <= fds)
        slack = (32 if SANITIZER else 2) << 20
        report(daemon.memory() <= memory + slack, "the daemon's memory is what it was",
               f"{daemon.memory()}, was {memory}")
        print(f"# the longest of {polite.calls} calls of another client took {polite.longest * 1000:.1f} ms ({polite.meanwhile}); "
              f"memory {memory >> 10} KiB, then {daemon.memory() >> 10} KiB")
        log_is_brief(daemon, int(time.monotonic() - before) // 60 + 1)
    finally:
        polite.stop()
        report(daemon.alive() and daemon.stop() == 0, "the daemon ends with status 0", daemon.text()[-2000:])


def limited(names):
    """Quotas that are full: the daemon says so, and others have theirs."""
    daemon = Daemon(LIMITED)
    polite = Polite(daemon)
    try:
        attack_all(daemon, polite, [n for n in names if n in ("quotas", "many_contexts", "extreme_fields", "region_quotas")],
                   "with low limits, ", "--limited")
    finally:
        polite.stop()
        report(daemon.alive() and daemon.stop() == 0, "the daemon ends with status 0", daemon.text()[-2000:])


def main():
    print(f"# seed {seed}")
    if not os.access(HOSTILE, os.X_OK):
        sys.exit(f"Bail out! no {HOSTILE}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    names = subprocess.run([HOSTILE, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    unlimited(names)
    limited(names)
    print(f"1..{len(results)}")
    subprocess.run(["rm", "-rf", folder], check=False)
    return 0 if all(results) else 1


sys.exit(main())
