# SPDX-License-Identifier: BSD-2-Clause
"""The table, the samples as TSV, and plots."""
import os
import platform
import shutil
import statistics
import subprocess

GNUPLOT = """
set terminal {terminal}
set termoption noenhanced
set output "{output}"
set style data boxes
set style fill solid 0.6 border
set boxwidth 0.7
set logscale x 2
set xrange [0.0625:16]
set xtics 2 format "%g"
set grid xtics
set yrange [{rows}+0.5:0.5] noreverse
set ytics () scale 0 font ",9"
unset key
set title "{title}"
set xlabel "1 is the goal, better is to the right"
set arrow from 1,graph 0 to 1,graph 1 nohead lw 2
set lmargin 62
plot "{data}" using 1:($0+1):(0.0625):1:($0+0.65):($0+1.35):2:ytic(3) with boxxyerror lc rgb variable notitle
"""


def figure(v):
    return "-" if v is None else f"{v:.3g}" if abs(v) < 1000 else f"{v:.0f}"


def machine():
    with open("/proc/cpuinfo") as f:
        models = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{len(models) or os.cpu_count()} x {models[0] if models else platform.machine()}, Linux {platform.release()}"


def verdict(row, samples):
    """The cells of a row, and (relation to the goal, colour) for the plot."""
    rounds, others = samples.rounds()
    got = row.result(rounds)
    goal = f"{'<=' if row.better == 'less' else '>='} {row.goal}"
    if got is None:
        lacking = [n for n in row.names() if n in samples.missing]
        why = samples.missing.get(lacking[0], "not measured") if lacking else "not measured"
        return [row.what, "-", "-", "-", goal, "not measured", why.splitlines()[0][:120]], None
    ours, other, name, value, met = got
    note = name + (f"; others had {others:.0f} % of the processors" if others > 10 else "")
    state = "disturbed" if others > 10 else "met" if met else "MISSED"
    relation = value / row.goal if row.better == "more" else row.goal / value if value > 0 else 16
    return ([row.what, figure(ours), figure(other), figure(value), goal, state, note],
            (min(max(relation, 0.07), 16), 0x2E8B57 if state == "met" else 0xC0392B if state == "MISSED" else 0x999999))


def verdicts(lines):
    """How many of the rows came to what, and which were not met."""
    text = ""
    for state, words in (("MISSED", "missed"), ("disturbed", "disturbed, so neither"), ("not measured", "not measured")):
        names = [f"{line[0]} ({line[3]}, goal {line[4]})" if line[3] != "-" else line[0] for line in lines if line[5] == state]
        if names:
            text += f" {len(names)} {words}: {'; '.join(n.replace('; ', ', ') for n in names)}."
    return f"{sum(line[5] == 'met' for line in lines)} of {len(lines)} rows met in this run." + text


def write(path, rows, samples):
    with open(path, "w") as f:
        f.write("row\tmeasurement\tmedian\tmin\tmax\trounds\tvalues\n")
        for row, of_row in zip(rows, samples):
            f.writelines(f"{row.what}\t{name}\t{median:.6g}\t{least:.6g}\t{most:.6g}\t{n}\t{every}\n"
                         for name, median, least, most, n, every in of_row.lines())
    table = [["what; against", "ours", "other", "ratio or difference", "goal", "", "the other, notes"]]
    plotted = []
    for row, of_row in zip(rows, samples):
        cells, mark = verdict(row, of_row)
        table.append(cells)
        if mark:
            plotted.append((*mark, cells[0]))
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    text = "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in table)
    text += f"\n\n{verdicts(table[1:])} {machine()}. Samples: {path}\n"
    print(text)
    base = os.path.splitext(path)[0]
    with open(base + ".txt", "w") as f:
        f.write(text)
    with open(base + "-goals.tsv", "w") as f:
        f.writelines("\t".join(line) + "\n" for line in table)
    with open(base + "-plot.tsv", "w") as f:
        f.writelines(f"{relation:.4g}\t{colour}\t\"{name}\"\n" for relation, colour, name in plotted)


def plot(path):
    base = os.path.splitext(path)[0]
    with open(base + "-plot.tsv") as f:
        rows = len(list(f))
    if not shutil.which("gnuplot") or not rows:
        print("no plots: gnuplot is not installed" if rows else "no plots: nothing was measured")
        return
    height = 120 + 22 * rows
    for kind, terminal in ("svg", f"svg size 1200,{height} dynamic"), ("png", f"png size 1200,{height}"):
        script = GNUPLOT.format(terminal=terminal, output=f"{base}.{kind}", rows=rows, data=base + "-plot.tsv",
                                title=machine())
        result = subprocess.run(["gnuplot"], input=script, text=True, stderr=subprocess.PIPE, check=False)
        if result.returncode:
            print(f"gnuplot: {result.stderr.strip()}")
            return
    print(f"plots: {base}.svg, {base}.png")


def document(path, srcdir, command, rounds, minutes):
    """What came of the goals, the table and the plot, between the marks in doc/performance.md."""
    base = os.path.splitext(path)[0]
    page = os.path.join(srcdir, "doc/performance.md")
    with open(base + "-goals.tsv") as f:
        rows = [line.rstrip("\n").replace("|", "/").split("\t") for line in f]
    lines = [f"Machine: {machine()}. Command: `{command}`: {rounds} rounds, {minutes:.0f} minutes.", "", verdicts(rows[1:]), ""]
    for i, row in enumerate(rows):
        lines.append("| " + " | ".join(row) + " |")
        if i == 0:
            lines.append("|---" * len(row) + "|")
    if os.path.exists(base + ".svg"):
        with open(base + ".svg") as f, open(os.path.join(srcdir, "doc/performance.svg"), "w") as to:
            to.write(f.readline() + "<!-- SPDX-License-Identifier: BSD-2-Clause -->\n" + f.read())
        lines += ["", "![each figure beside its goal](performance.svg)"]
    with open(page) as f:
        text = f.read()
    head, rest = text.split("<!-- results -->\n", 1)
    tail = rest.split("<!-- /results -->", 1)[1]
    with open(page, "w") as f:
        f.write(head + "<!-- results -->\n" + "\n".join(lines) + "\n<!-- /results -->" + tail)
    print(f"written: {page}")
