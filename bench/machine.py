"""Which machine this is, and whether it is quiet."""
import os
import time


def describe():
    """What figures belong to, as a dict."""
    import hattn

    info = hattn.info()
    return {"cpu": info["cpu"]["model"], "cores": info["cpu"]["cores"], "hattn": info["version"]}


def _ticks():
    with open("/proc/stat", encoding="ascii") as file:
        counts = [int(text) for text in file.readline().split()[1:9]]
    idle = counts[3] + counts[4]  # idle, iowait
    return idle, sum(counts)


def busy_share(seconds=0.5):
    """Share of all cores, 0 to 1, that somebody used while this process slept; None where the system does not tell."""
    try:
        idle_before, total_before = _ticks()
        time.sleep(seconds)
        idle, total = _ticks()
    except (OSError, ValueError):
        return None
    return 1.0 - (idle - idle_before) / max(1, total - total_before)


def print_noise(shares):
    """One line if other processes took time from the figures. shares: of busy_share(), before and after."""
    worst = max((share for share in shares if share is not None), default=0.0)
    if worst > 0.05:
        print(f"\nThis machine was not quiet: beside the benchmark {worst:.0%} of its {os.cpu_count()} cores were in "
              "use. Figures are below what it can do.")
