#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""
What two columns of numbers, taken in pairs, say of each other.

usage: paired.py NATIVE BROKERED    Two files, a number a line, the n-th of both of one pair. Prints their medians, the median
of the pairs' ratios, and the bounds between which that median is with a probability of 95 % (bootstrap).
"""
import random
import statistics
import sys


def numbers(path):
    with open(path, encoding="ascii") as file:
        return [float(line) for line in file.read().split()]


def main():
    native, brokered = (numbers(path) for path in sys.argv[1:3])
    if not native or len(native) != len(brokered):
        sys.exit(f"{len(native)} and {len(brokered)} numbers make no pairs")
    ratios = [b / n for n, b in zip(native, brokered)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    print(
        f"{statistics.median(native):g} {statistics.median(brokered):g} {statistics.median(ratios):.3f} "
        f"{medians[100]:.3f} {medians[-101]:.3f}"
    )


main()
