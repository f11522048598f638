"""Which machine this is, and whether others used it meanwhile."""
import os


def describe():
    """What figures belong to, as a dict."""
    import hattn

    info = hattn.info()
    return {"cpu": info["cpu"]["model"], "cores": info["cpu"]["cores"], "hattn": info["version"]}


class OtherProcesses:
    """What everybody but this process and its finished children used since the object was made."""

    def __init__(self):
        self._begin = self._now()

    @staticmethod
    def _now():
        """Seconds of all cores: (available, busy, our own); None where the system does not tell."""
        try:
            with open("/proc/stat", encoding="ascii") as file:
                ticks = [int(text) for text in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return None
        second = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]  # idle, iowait
        return sum(ticks) / second, (sum(ticks) - idle) / second, sum(os.times()[:4])

    def share(self):
        """Share of all cores, 0 to 1; None if unknown."""
        now = self._now()
        if now is None or self._begin is None:
            return None
        available, busy, own = (end - begin for end, begin in zip(now, self._begin))
        return max(0.0, busy - own) / max(available, 1e-3)


def print_noise(share):
    """A line if others took time from the figures."""
    if share is not None and share > 0.02:
        print(f"\nOther processes used {share:.0%} of the machine meanwhile: figures are below what it can do.")
