"""hattn-roofline for run.py: where the time of one kernel goes, stage by stage."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments):
    """arguments: those of hattn-roofline, and --build DIR; returns the exit status."""
    build, rest = ROOT / "build" / "release", list(arguments)
    if "--build" in rest:
        at = rest.index("--build")
        build = Path(rest[at + 1]) if at + 1 < len(rest) else build
        del rest[at:at + 2]
    program = build / "bench" / "roofline" / "hattn-roofline"
    if not program.exists():
        print(f"bench: error: {program}: not there; it compiles kernels, which takes a build tree with Halide: ./dev "
              "bench --roofline makes it", file=sys.stderr)
        return 2
    return subprocess.run([program, *rest], check=False).returncode
