#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
#
# That the benchmark runs, as an ordinary user, and what it writes: the table, the samples, the plots. What the figures are is
# not looked at, but that they are.
# shellcheck source=tests/e2e/lib.bash
. "$(dirname "$0")/lib.bash"
need python3 cc
# It needs its build and its sources, and the unprivileged user may not be able to reach either.
build=$work/out/build src=$work/out/src
mkdir -p "$build/tests/bench/.libs" "$src/tests"
cp -r "$VERBSD_SRCDIR/tests/bench" "$src/tests/"
for name in floor fork limits regions scale sockets words .libs/libverbsd-posix-mutexes.so; do
	cp "$VERBSD_BUILD/tests/bench/$name" "$build/tests/bench/$name" || { echo "Bail out! no $name: make bench-programs"; exit 1; }
done
chmod -R go+rX "$work/out"
find "$build" -type d -exec chmod 777 {} +

# bench PROGRAM ARGUMENT...: from there, by that user.
bench()
{
	(as_user timeout -k 5 $((250 * patience)) env HOME="$work/out" TMPDIR="$work/out" VERBSD_BUILD="$build" VERBSD_ROOT="$root" \
		VERBSD_SRCDIR="$src" python3 "$src/tests/bench/$1" "${@:2}")
}

# That a measurement is there, with figures: of the samples, of what was made of them, and in what was printed.
cat >"$work/out/figures.py" <<-'EOF'
	import sys

	base, row = sys.argv[1:]
	with open(base + ".tsv") as f:
	    head, *lines = [line.rstrip("\n").split("\t") for line in f]
	assert head == ["row", "measurement", "median", "min", "max", "rounds", "values"], head
	assert len(lines) == 2 and all(len(line) == 7 and line[0] == row for line in lines), lines
	for name, median, least, most, rounds, values in (line[1:] for line in lines):
	    assert name and 0 < float(least) <= float(median) <= float(most) and rounds == "2", lines
	    taken = [float(v.split("(")[0]) for v in values.split()]
	    # Written with six digits, all of them.
	    assert len(taken) == 2 and min(taken) == float(least) and max(taken) == float(most), lines
	with open(base + "-goals.tsv") as f:
	    goals = [line.rstrip("\n").split("\t") for line in f]
	assert len(goals) == 2 and goals[1][0] == row and goals[1][4] == "<= 0.1", goals
	assert all(float(v) > 0 for v in goals[1][1:4]) and goals[1][5] in ("met", "MISSED", "disturbed"), goals
	with open(base + ".txt") as f:
	    text = f.read()
	with open(base + ".printed") as f:
	    assert text in f.read()
	table = [line.split() for line in text.splitlines() if line.startswith(row)]
	assert len(table) == 1 and table[0][len(row.split()):][:4] == [*goals[1][1:4], "<="], text
EOF
cat >"$work/out/pictures.py" <<-'EOF'
	import struct, sys, xml.etree.ElementTree, zlib

	base, row = sys.argv[1:]
	svg = xml.etree.ElementTree.parse(base + ".svg").getroot()
	assert svg.tag == "{http://www.w3.org/2000/svg}svg", svg.tag
	assert any(row in "".join(e.itertext()) for e in svg.iter("{http://www.w3.org/2000/svg}text")), "the row is not in it"
	with open(base + ".png", "rb") as f:
	    png = f.read()
	assert png[:8] == b"\x89PNG\r\n\x1a\n", png[:8]
	at, kinds = 8, []
	while at < len(png):
	    n, kind = struct.unpack(">I4s", png[at:at + 8])
	    assert zlib.crc32(png[at + 4:at + 8 + n]) == struct.unpack(">I", png[at + 8 + n:at + 12 + n])[0], kind
	    kinds.append(kind)
	    at += 12 + n
	assert kinds[0] == b"IHDR" and b"IDAT" in kinds and kinds[-1] == b"IEND", kinds
	assert struct.unpack(">II", png[16:24])[0] == 1200, "its width"
EOF

row="registration of 4 KiB; two control round trips"
base=$build/bench
last=$base.printed
out=$last
if status 0 "tests/bench/run measures a row, twice" \
	bench run -n 2 --tries 1 --patience 0 --minutes 60 --only "registration of 4 KiB" -o "$base.tsv"; then
	tap_run "the table and the samples have figures" python3 "$work/out/figures.py" "$base" "$row"
	if command -v gnuplot >/dev/null; then
		tap_run "the plots are an SVG and a PNG" python3 "$work/out/pictures.py" "$base" "$row"
	else
		tap_skip "the plots are an SVG and a PNG" "gnuplot is not installed"
	fi
fi
tap_run "the peers whose libraries are installed compile" eval '! grep -A 9 "does not compile" "$last.err"'

# The samples, one line a measurement: its name, and each.
more_figures()
{
	[ "$(grep -cP '^8 B to and fro with(out one| a thread domain), ns\t[0-9.]+$' "$build/more.tsv")" = 2 ] &&
		[ "$(grep -cP '^8 B to and fro with(out one| a thread domain), ns +[0-9.]+ +[0-9.]+ +[0-9.]+  1$' "$last")" = 2 ]
}

last=$build/more.printed
out=$last
status 0 "tests/bench/more measures two things" bench more -n 1 --only "8 B to and fro" -o "$build/more.tsv" &&
	tap_run "and has a figure of each" more_figures
tap_done
