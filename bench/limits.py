"""The machine's peak of multiply-adds, measured in this process by the library that hattn-bench uses too."""
import ctypes
from pathlib import Path

_NAME = "libhattn_machine_limits.so"
_LOOK_SECONDS, _LOOKS = 5e-4, 10  # on a shared machine a short look is likelier to be undisturbed


class MachineLimits:
    """The best seen so far; every other process and every clock change only takes away."""

    def __init__(self, build, threads):
        """build: the build tree, a Path. threads: how many compute."""
        path = Path(build) / "bench" / _NAME
        if not path.exists():
            raise FileNotFoundError(f"{path}: not there; ./dev build makes it")
        library = ctypes.CDLL(str(path))
        library.hattn_bench_widest_isa.restype = ctypes.c_char_p
        self._flops = library.hattn_bench_flops
        self._flops.restype = ctypes.c_double
        self._flops.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_double]
        self._isa = library.hattn_bench_widest_isa()
        self._threads = threads
        self.fma_peak = 0.0  # floating-point operations per second
        self.measure()

    @property
    def isa(self):
        """The widest instruction set that runs here: "baseline", "avx2" or "avx512"."""
        return self._isa.decode()

    def measure(self):
        """Looks again, for some milliseconds."""
        for _ in range(_LOOKS):
            self.fma_peak = max(self.fma_peak, self._flops(self._isa, self._threads, _LOOK_SECONDS))
