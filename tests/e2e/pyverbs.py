#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
#
# rdma-core's own Python tests, as Debian installs them, unchanged, under the preload as an unprivileged user with 64 KiB
# of lockable memory. Tests of a vendor's hardware are left out. Each test is a case here; none may fail, no fewer may
# pass than pyverbs.expected says, and each that is skipped is named there with the reason. A test for the other link
# layer runs on a device that has it.
#
# At full length the suite runs three times, the second and the third time in random order, and passes the same tests;
# and once on Ethernet.
#
# pyverbs.py [MODULE or MODULE.Class.test ...]: only those.
import fnmatch
import gzip
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SUITE = os.environ.get("VERBSD_PYVERBS", "/usr/share/doc/rdma-core/tests")
PYTHON = "/usr/bin/python3"  # the one that Debian's pyverbs belongs to
VENDORS = re.compile(r"mlx4|mlx5|efa|cuda")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("VERBSD_ROOT", "")
PRELOAD = ":".join(p for p in (os.environ.get("VERBSD_PRELOAD_FIRST"), f"{ROOT}/lib/libverbsd.so") if p)
NOBODY = 65534
SILENCE = 120  # seconds without a result; only a hang reaches it

FULL = os.environ.get("VERBSD_LENGTH") == "full"
DEVICES = """
[device soft0]
[device roce0]
link_layer = ethernet
"""

# Runs below the suite's folder: FD DEVICE SEED TEST...; one line a result. Standard output is the suite's own. With a
# seed other than 0 the tests are in the order that follows from it.
RUNNER = r"""
import os, random, sys, unittest
results = os.fdopen(int(sys.argv.pop(1)), "w")
device, seed, *wanted = sys.argv[1:]
sys.argv[1:] = ["--dev", device]
sys.path.insert(0, os.path.join(os.getcwd(), "tests"))
sys.path.insert(0, os.getcwd())
from args_parser import parser
parser.parse_args()

class Result(unittest.TestResult):
    def say(self, what, test, text=""):
        print(what, test.id(), " ".join(str(text).split()), file=results, flush=True)
    def startTest(self, test):
        super().startTest(test)
        self.say("start", test)
    def addSuccess(self, test):
        self.say("pass", test)
    def addSkip(self, test, reason):
        self.say("skip", test, reason)
    def addFailure(self, test, err):
        self.say("fail", test, self._exc_info_to_string(err, test)[-1500:])
    addError = addFailure
    def addSubTest(self, test, subtest, err):
        if err:
            self.say("fail", test, subtest.id())

def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test

tests = list(flat(unittest.defaultTestLoader.loadTestsFromNames(["tests." + name for name in wanted])))
if int(seed):
    random.Random(int(seed)).shuffle(tests)
unittest.TestSuite(tests).run(Result())
"""


class HugePages:
    """While the suite runs, the host has huge pages for the tests that need them, if it lets us. Put back at the end."""

    PATH = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    WANTED = 64

    def number(self):
        try:
            with open(self.PATH) as file:
                return int(file.read())
        except OSError:
            return 0

    def set(self, number):
        try:
            with open(self.PATH, "w") as file:
                file.write(str(number))
        except OSError:
            pass  # not root, a read-only /sys: the tests are skipped, and say why

    def __enter__(self):
        self.before = self.number()
        if self.before < self.WANTED:
            self.set(self.WANTED)
        self.during = self.number()
        if self.during < self.WANTED:
            print(f"# {self.during} huge pages, not {self.WANTED}: their tests may be skipped")
        return self

    def __exit__(self, *_):
        if self.during != self.before and self.number() == self.during:
            self.set(self.before)


class Expected:
    """pyverbs.expected: how many pass, and why others are skipped."""

    def __init__(self):
        with open(os.path.join(HERE, "pyverbs.expected")) as file:
            lines = [line.split(None, 2) for line in file if line.strip() and not line.startswith("#")]
        self.passed = next(int(words[1]) for words in lines if words[0] == "passed")
        self.skips = [(words[1], words[2].strip()) for words in lines if words[0] == "skip"]

    def reason(self, name):
        return next((reason for pattern, reason in self.skips if fnmatch.fnmatchcase(name, pattern)), None)


class Tap:
    """One pass over the suite. Its cases go on counting where the last pass stopped."""

    cases = failed = 0

    def __init__(self, title, expected, strict):
        self.title = title
        self.expected = expected
        self.strict = strict  # skipping what is not named is a failure
        self.n = {"pass": 0, "fail": 0, "skip": 0}
        self.no_huge = 0  # skipped because the host has no huge pages for us
        self.passed = set()
        self.other_link = []  # skipped because of the link layer: to be run on another device

    def case(self, what, name, text=""):
        skip = ""
        self.n[what] += 1
        if what == "pass":
            self.passed.add(name)
        if what == "skip":
            huge = "huge pages" in text.lower()
            self.no_huge += huge
            reason = self.expected.reason(name)
            if reason or huge or not self.strict:
                skip = f" # SKIP {reason or 'the host has no huge pages for it'}: {text or 'no reason given'}"
            else:
                what, text = "fail", f"pyverbs.expected has no reason why it may be skipped: {text}"
        Tap.cases += 1
        Tap.failed += what == "fail"
        print(f"{'not ok' if what == 'fail' else 'ok'} {Tap.cases} - {self.title}{name}{skip}", flush=True)
        if what == "fail" and text:
            print(f"# {text}", flush=True)


def demote():
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def demote_program():
    os.setsid()
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == resource.RLIM_INFINITY or hard > 65536:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    demote()


def suite_copy(folder):
    tests = os.path.join(folder, "tests")
    os.mkdir(tests)
    for name in os.listdir(SUITE):
        path = os.path.join(SUITE, name)
        if name.endswith(".py.gz"):
            with gzip.open(path) as source, open(os.path.join(tests, name[:-3]), "wb") as copy:
                shutil.copyfileobj(source, copy)
        elif name.endswith(".py"):
            shutil.copy(path, tests)
    with open(os.path.join(folder, "runner.py"), "w") as runner:
        runner.write(RUNNER)
    return sorted(n[:-3] for n in os.listdir(tests)
                  if n.startswith("test_") and n.endswith(".py") and not VENDORS.search(n))


def daemon_start(folder):
    run = os.path.join(folder, "run")
    os.mkdir(run)
    os.chmod(run, 0o777)
    r, w = os.pipe()
    log = open(os.path.join(folder, "daemon.log"), "w")
    config = os.path.join(folder, "verbsd.conf")
    with open(config, "w") as file:
        file.write(DEVICES)
    daemon = subprocess.Popen([f"{ROOT}/sbin/verbsd", "--socket", f"{run}/verbsd.sock", "--admin-socket",
                               f"{run}/admin.sock", "--config", config, "--ready-fd", str(w)], pass_fds=[w],
                              stdout=log, stderr=log, preexec_fn=demote)
    os.close(w)
    ready = os.read(r, 1)
    os.close(r)
    if not ready:
        sys.exit("Bail out! the daemon did not start: " + open(log.name).read()[-500:])
    return daemon, f"{run}/verbsd.sock"


def environment(socket):
    env = dict(os.environ, LD_PRELOAD=PRELOAD, VERBSD_SOCKET=socket, PYTHONDONTWRITEBYTECODE="1",
               HOME="/nonexistent")
    env.pop("PYTHONPATH", None)
    env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # Python leaks by design
    return env


def run(folder, names, env, tap, device, seed=0, elsewhere=False):
    """One process for the tests of a module: a crash costs that module alone."""
    r, w = os.pipe()
    out = open(os.path.join(folder, "out"), "w+")
    process = subprocess.Popen([PYTHON, "-I", os.path.join(folder, "runner.py"), str(w), device, str(seed),
                                *names], cwd=folder, env=env, pass_fds=[w], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                               preexec_fn=demote_program)
    os.close(w)
    running, hung, data = None, False, b""
    while True:
        if not select.select([r], [], [], SILENCE)[0]:
            hung = True
            process.kill()
        chunk = os.read(r, 65536)
        if not chunk:
            break
        data += chunk
        *lines, data = data.split(b"\n")
        for line in lines:
            what, name, *text = line.decode(errors="replace").split(" ", 2)
            if what == "start":
                running = name
            else:
                running = None
                name, text = name.removeprefix("tests."), text[0] if text else ""
                if elsewhere and what == "skip" and text.startswith("Link layer of port"):
                    tap.other_link.append(name)
                else:
                    tap.case(what, name, text)
    os.close(r)
    status = process.wait()
    out.seek(0)
    printed = " ".join(out.read()[-1000:].split())
    if running or status:
        how = "no result within the limit" if hung else f"ended with status {status}"
        tap.case("fail", (running or names[0]).removeprefix("tests."), f"{how}: {printed}")


def main():
    if not os.path.isdir(SUITE):
        print(f"1..0 # SKIP no {SUITE} (Debian: rdma-core)")
        return 0
    if subprocess.run([PYTHON, "-I", "-c", "import pyverbs.device"], capture_output=True).returncode:
        print("1..0 # SKIP no pyverbs (Debian: python3-pyverbs)")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="verbsd-pyverbs.")
    os.chmod(folder, 0o755)
    daemon = None
    try:
        modules = suite_copy(folder)
        daemon, socket = daemon_start(folder)
        with HugePages():
            taps = passes(folder, sys.argv[1:] or modules, environment(socket))
        if daemon.poll() is not None:
            taps[0].case("fail", "the daemon is there still", f"status {daemon.returncode}: " +
                         open(os.path.join(folder, "daemon.log")).read()[-800:])
    finally:
        if daemon:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"1..{Tap.cases}")
    return 1 if Tap.failed else 0


def one_pass(folder, names, env, tap, device, seed=0):
    start = time.monotonic()
    for name in names:
        run(folder, [name], env, tap, device, seed, elsewhere=device == "soft0")
    for name in tap.other_link:
        run(folder, [name], env, tap, "roce0")
    n = tap.n
    print(f"# pyverbs on {device}, seed {seed}: {n['pass']} passed, {n['fail']} failed, {n['skip']} skipped in "
          f"{time.monotonic() - start:.0f} s")
    return tap


def passes(folder, names, env):
    expected = Expected()
    first = one_pass(folder, names, env, Tap("", expected, True), "soft0")
    taps = [first]
    if not sys.argv[1:]:
        wanted, got = expected.passed - first.no_huge, len(first.passed)
        first.case("pass" if got >= wanted else "fail", f"no fewer than {wanted} pass", f"only {got} did")
    for again in (2, 3) if FULL else ():
        seed = random.randrange(1, 1 << 31)
        order = random.Random(seed).sample(names, len(names))
        tap = one_pass(folder, order, env, Tap(f"pass {again}: ", expected, True), "soft0", seed)
        taps.append(tap)
        differ = (first.passed ^ tap.passed) - {name for name in first.passed if name.startswith("no fewer than")}
        tap.case("fail" if differ else "pass", f"the same tests pass with seed {seed}", " ".join(sorted(differ)))
    if FULL:
        taps.append(one_pass(folder, names, env, Tap("on Ethernet: ", expected, False), "roce0"))
    return taps


if __name__ == "__main__":
    sys.exit(main())
