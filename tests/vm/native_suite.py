#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
rdma-core's own Python tests on one device: a line for each, its result and its name, in the order of the names.

usage: native_suite.py FOLDER DEVICE    FOLDER has the suite in a package called tests.
"""
import os
import sys
import unittest

folder, device = sys.argv[1:3]
sys.argv[1:] = ["--dev", device]
os.chdir(folder)
sys.path[:0] = [folder, os.path.join(folder, "tests")]

# What the tests print is no result of theirs.
results = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from args_parser import parser  # noqa: E402  its path is only known now

parser.parse_args()


class Result(unittest.TestResult):
    """Only what became of each."""

    def __init__(self):
        super().__init__()
        self.lines = {}

    def addSuccess(self, test):
        self.lines.setdefault(test.id(), "pass")

    def addSkip(self, test, reason):
        self.lines[test.id()] = "skip"

    def addFailure(self, test, err):
        self.lines[test.id()] = "fail"
        print(test.id(), self._exc_info_to_string(err, test)[-2000:], file=sys.stderr)

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err:
            self.lines[test.id()] = "fail"


result = Result()
unittest.defaultTestLoader.discover("tests", "test*.py", ".").run(result)
for name, what in sorted(result.lines.items()):
    print(what, name, file=results)
