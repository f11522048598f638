#!/usr/bin/env python3
"""Where a kernel's time goes, by innermost loop of its machine code: samples of Linux's perf while hattn-bench-builds times a build.

    python bench/loop_samples.py build/release/bench/libhattn_snapshot.so --shape=1x16x8x2048x2048x128 --threads=1
    python bench/loop_samples.py BUILD --filter=^softcap_s2048 --keys=bfloat16

Options are those of hattn-bench-builds. Samples are by the clock (cpu-clock), which virtual machines have too: each falls on an
instruction whose result was waited for, or the one behind it. Unlike hattn-roofline it sees the kernel as it is, with loops of several
stages dealt among each other, and knows no stages. What stands between innermost loops is listed as `code`.
"""
import argparse
import bisect
import collections
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1] / "build" / "release" / "bench" / "hattn-bench-builds"
SAMPLES_PER_SECOND = 4999
LEAST_SHARE = 0.05  # of a kernel that is shown
PARTS = 12  # of a kernel, the longest
KINDS = 8  # of instructions

# hattn-bench-builds loads a copy of the build.
_MAPPED = re.compile(r"MMAP2 .*\[0x(?P<start>[0-9a-f]+)\(0x(?P<size>[0-9a-f]+)\) @ (?:0x)?(?P<offset>[0-9a-f]+) .*r-xp \S*/hattn-build-")
_SEGMENT = re.compile(r"^\s*LOAD\s+0x(?P<offset>[0-9a-f]+)\s+0x(?P<address>[0-9a-f]+)\s.* R E ")
_KERNEL = re.compile(r"^(?P<address>[0-9a-f]+) \S (?P<name>hattnkernel_\w+)$")
_INSTRUCTION = re.compile(r"^\s*(?P<address>[0-9a-f]+):\t(?P<kind>\S+)\s*(?P<operands>.*)$")
_JUMP = re.compile(r"^j\w+$")


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def code_offset(segments):
    """What an address of code in a library is beyond its place in the file, by `readelf --segments`."""
    found = next(match for line in segments.splitlines() if (match := _SEGMENT.match(line)))
    return int(found["address"], 16) - int(found["offset"], 16)


def samples_at(script, offset):
    """{address in the library: samples} out of `perf script --show-mmap-events -F ip`, of code that was mapped before."""
    maps, samples = [], collections.Counter()
    for line in script.splitlines():
        if match := _MAPPED.search(line):
            maps.append(tuple(int(match[name], 16) for name in ("start", "size", "offset")))
        elif re.fullmatch(r"\s*[0-9a-f]+\s*", line):
            address = int(line, 16)
            for start, size, place in maps:
                if start <= address < start + size:
                    samples[address - start + place + offset] += 1
                    break
    return samples


def instructions_of(disassembly):
    """[(address, kind, operands)]"""
    matches = (_INSTRUCTION.match(line) for line in disassembly.splitlines())
    return [(int(match["address"], 16), match["kind"], match["operands"]) for match in matches if match]


def parts_of(instructions):
    """[("loop" or "code", first, end)]: innermost loops, and what stands between them."""
    place = {address: index for index, (address, _, _) in enumerate(instructions)}
    loops = set()
    for index, (_, kind, operands) in enumerate(instructions):
        target = re.match(r"[0-9a-f]+", operands) if _JUMP.match(kind) else None
        begin = place.get(int(target[0], 16)) if target else None
        if begin is not None and begin <= index:
            loops.add((begin, index + 1))
    inner = sorted(one for one in loops if not any(one != other and one[0] <= other[0] and other[1] <= one[1] for other in loops))
    parts, end = [], 0
    for begin, after in inner:
        if begin > end:
            parts.append(("code", end, begin))
        if begin >= end:  # loops that cross each other are rare: the first one has what both have
            parts.append(("loop", begin, after))
            end = after
    if end < len(instructions):
        parts.append(("code", end, len(instructions)))
    return parts


def record(build, options):
    """What perf says of a run."""
    with tempfile.TemporaryDirectory() as folder:
        data = str(Path(folder) / "perf.data")
        try:
            recorded = subprocess.run(["perf", "record", "--quiet", f"--freq={SAMPLES_PER_SECOND}", "--event=cpu-clock", f"--output={data}",
                                       str(BENCH), str(build), str(build), *options], stdout=subprocess.PIPE, text=True)
        except FileNotFoundError:
            sys.exit("perf: not found; of Debian it is in linux-perf")
        sys.stdout.write(recorded.stdout)
        if recorded.returncode != 0:
            sys.exit(recorded.returncode)
        return output_of("perf", "script", f"--input={data}", "--show-mmap-events", "--fields=ip")


def print_kernel(build, name, samples, everything):
    instructions = instructions_of(output_of("objdump", "--disassemble=" + name, "--no-show-raw-insn", str(build)))
    start = instructions[0][0]
    counted = [(sum(samples[address] for address, _, _ in instructions[begin:end]), part, begin, end)
               for part, begin, end in parts_of(instructions)]
    print(f"\n{name.removeprefix('hattnkernel_')}: {sum(count for count, *_ in counted) / everything:.1%} of the library's samples\n")
    print("| of them | | bytes | instructions | most of them |\n|---|---|---|---|---|")
    for count, part, begin, end in sorted(counted, reverse=True)[:PARTS]:
        kinds = collections.Counter(kind for _, kind, _ in instructions[begin:end]).most_common(KINDS)
        place = f"{instructions[begin][0] - start:x} to {instructions[end - 1][0] - start:x}"
        print(f"| {count / everything:.1%} | {part} | {place} | {end - begin} | {', '.join(f'{kind} {n}' for kind, n in kinds)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="the library as a shared object, see hattn-bench-builds --help")
    arguments, options = parser.parse_known_args()
    for path in (arguments.build, BENCH):
        if not path.exists():
            parser.error(f"{path}: not there; ./dev build makes it")
    samples = samples_at(record(arguments.build, options), code_offset(output_of("readelf", "--segments", "--wide", str(arguments.build))))
    everything = sum(samples.values())
    if everything == 0:
        sys.exit("perf: has no samples of the library")
    kernels = sorted((int(match["address"], 16), match["name"])
                     for line in output_of("nm", str(arguments.build)).splitlines() if (match := _KERNEL.match(line)))
    addresses = [address for address, _ in kernels]
    of_kernel = collections.Counter()
    for address, count in samples.items():
        if (index := bisect.bisect(addresses, address)) > 0:
            of_kernel[kernels[index - 1][1]] += count
    for name, count in of_kernel.most_common():
        if count >= LEAST_SHARE * everything:
            print_kernel(arguments.build, name, samples, everything)


if __name__ == "__main__":
    main()
