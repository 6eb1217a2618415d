#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
#
# Somebody is killed in mid-traffic, at a random point: either client, a client whose forked child lives on, or the
# daemon. The survivor gets completions in error and an event, and ends; nothing of the dead stays in the daemon.
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.environ["VERBSD_ROOT"]
BUILD = os.environ["VERBSD_BUILD"]
FULL = os.environ.get("VERBSD_LENGTH") == "full"
TRAFFIC = os.path.join(BUILD, "tests/e2e/traffic")
PRELOAD = ":".join(p for p in (os.environ.get("VERBSD_PRELOAD_FIRST"), f"{ROOT}/lib/libverbsd.so") if p)
LIMIT = 60  # seconds; only a hang reaches it
seed = int(os.environ.get("VERBSD_SEED", random.randrange(1 << 32) if FULL else 1))  # the same in each run of CI length
rng = random.Random(seed)
results = []
folder = tempfile.mkdtemp(prefix="verbsd-chaos.")
os.chmod(folder, 0o777)


def report(ok, name, detail=""):
    results.append(ok)
    print(f"{'ok' if ok else 'not ok'} {len(results)} - {name}", flush=True)
    if not ok:
        for line in str(detail).splitlines():
            print(f"# {line}")


def demote():
    os.setsid()
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)


class Daemon:
    def __init__(self):
        self.dir = tempfile.mkdtemp(dir=folder)
        os.chmod(self.dir, 0o777)
        self.socket = os.path.join(self.dir, "verbsd.sock")
        self.log = open(os.path.join(self.dir, "log"), "w")
        r, w = os.pipe()
        self.process = subprocess.Popen(
            [f"{ROOT}/sbin/verbsd", "--socket", self.socket, "--admin-socket", self.dir + "/admin.sock",
             "--ready-fd", str(w)], stdout=self.log, stderr=self.log, pass_fds=[w], preexec_fn=demote)
        os.close(w)
        ready = os.read(r, 1)
        os.close(r)
        if not ready:
            sys.exit("Bail out! the daemon did not start: " + open(self.log.name).read())

    def status(self):
        out = subprocess.run([f"{ROOT}/bin/verbsctl", "--socket", self.socket, "status", "--json"],
                             stdout=subprocess.PIPE, check=True, timeout=LIMIT).stdout
        return flat(json.loads(out))

    def memory(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * 4096

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        self.process.terminate()
        return self.process.wait(LIMIT)


def flat(value, out=None):
    out = {} if out is None else out
    if isinstance(value, dict):
        for k, v in value.items():
            if isinstance(v, (dict, list)):
                flat(v, out)
            else:
                out[k] = v
    elif isinstance(value, list):
        for v in value:
            flat(v, out)
    return out


class Pair:
    def __init__(self, daemon, *options):
        self.path = tempfile.mktemp(dir=folder)
        env = dict(os.environ, LD_PRELOAD=PRELOAD, VERBSD_SOCKET=daemon.socket)
        self.ends = []
        for role in "listen", "connect":
            if role == "connect":
                wait_until(lambda: os.path.exists(self.path) or self.ends[0].poll() is not None)
            self.ends.append(subprocess.Popen([TRAFFIC, role, self.path, *options], env=env, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=demote))

    def running(self):
        lines = []
        for end in self.ends:
            while True:
                line = end.stdout.readline()
                lines.append(line)
                if line == "running\n":
                    break
                if not line:
                    self.signal()
                    raise RuntimeError("an end did not start: " + end.stderr.read())
        return lines

    def finish(self, end):
        try:
            out, err = self.ends[end].communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            stack = subprocess.run(["cat", f"/proc/{self.ends[end].pid}/wchan"], stdout=subprocess.PIPE, text=True).stdout
            self.kill()
            return None, "", "hangs: " + stack
        return self.ends[end].returncode, out, err

    def signal(self):
        for end in self.ends:
            try:
                os.killpg(end.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def kill(self):
        self.signal()
        for end in self.ends:
            end.wait()
            for f in end.stdout, end.stderr:
                f.close()


def wait_until(condition, limit=LIMIT):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)  # between two looks
    return True


def kill_clients(daemon):
    rounds = int(os.environ.get("VERBSD_ROUNDS", 1000 if FULL else 200))
    bad = []
    baseline = None
    for i in range(rounds):
        victim = rng.randrange(2)
        options = ["--events"] if i % 3 == 1 else []
        pair = Pair(daemon, *options)
        try:
            pair.running()
            time.sleep(rng.random() * 0.05)  # the random point: up to 50 ms into the traffic
            os.kill(pair.ends[victim].pid, signal.SIGKILL)
            status, out, err = pair.finish(1 - victim)
            # A daemonless wait would never end: all objects of both must go by themselves.
            if status != 0 or not out.startswith("failed ") or out.rstrip().endswith("none"):
                bad.append(f"round {i} {options}: status {status}, {out.strip()!r}, {err.strip()!r}")
        except RuntimeError as e:
            bad.append(f"round {i}: {e}")
        finally:
            pair.kill()
        if i == rounds // 4:
            wait_until(lambda: gone(daemon))
            baseline = daemon.fds(), daemon.memory()
    report(not bad, f"kill -9 of either side, {rounds} times: the other ends with errors and an event", "\n".join(bad))
    report(wait_until(lambda: gone(daemon)), "nothing of the dead is left", daemon.status())
    report(wait_until(lambda: daemon.fds() <= baseline[0]), "the daemon's fds are what they were",
           f"{daemon.fds()}, were {baseline[0]}")
    # A leak of one page in each further round would show; the allocator's own slack does not.
    slack = 1 << 20
    report(daemon.memory() <= baseline[1] + slack, "the daemon's memory is what it was",
           f"{daemon.memory()}, was {baseline[1]}")


def gone(daemon):
    s = daemon.status()
    return int(s["objects"]) == 0 and int(s["wires"]) == 0 and int(s["contexts"]) == 0


def forked_child(daemon):
    pair = Pair(daemon, "--fork")
    child = None
    try:
        lines = pair.running()
        child = [int(l.split()[1]) for l in lines if l.startswith("child")]
        os.kill(pair.ends[0].pid, signal.SIGKILL)
        status, out, err = pair.finish(1)
        alive = os.path.exists(f"/proc/{child[0]}")
        report(status == 0 and out.startswith("failed"), "a killed client whose child lives: its peer is told",
               f"status {status} {out} {err}")
        report(alive and wait_until(lambda: gone(daemon)), "... and its objects are gone all the same", daemon.status())
    except RuntimeError as e:
        report(False, "a killed client whose child lives", e)
    finally:
        for c in child or []:
            try:
                os.kill(c, signal.SIGKILL)
            except ProcessLookupError:
                pass
        pair.kill()


def kill_daemon():
    rounds = 20 if FULL else 4
    bad = []
    errnos = set()
    for i in range(rounds):
        daemon = Daemon()
        stop = tempfile.mktemp(dir=folder)
        pair = Pair(daemon, "--until", stop, "--create-after", *(["--events"] if i % 2 else []))
        try:
            pair.running()
            time.sleep(rng.random() * 0.05)  # the random point
            daemon.process.kill()
            daemon.process.wait()
            open(stop, "w").close()
            for end in 0, 1:
                status, out, err = pair.finish(end)
                if status != 0 or "done " not in out or "create: " not in out:
                    bad.append(f"round {i}: status {status}, {out.strip()!r}, {err.strip()!r}")
                errnos |= {l for l in out.splitlines() if l.startswith("create: ")}
        except RuntimeError as e:
            bad.append(f"round {i}: {e}")
        finally:
            pair.kill()
    report(not bad, f"the daemon killed in mid-traffic, {rounds} times: traffic and tear-down end with status 0",
           "\n".join(bad))
    report(len(errnos) == 1, "the next creating call fails with one clear errno", errnos)


def main():
    print(f"# seed {seed}")
    if not os.access(TRAFFIC, os.X_OK):
        sys.exit(f"Bail out! no {TRAFFIC}")
    daemon = Daemon()
    kill_clients(daemon)
    forked_child(daemon)
    report(daemon.stop() == 0, "the daemon ends with status 0", open(daemon.log.name).read()[-500:])
    kill_daemon()
    print(f"1..{len(results)}")
    subprocess.run(["rm", "-rf", folder], check=False)
    return 0 if all(results) else 1


sys.exit(main())
