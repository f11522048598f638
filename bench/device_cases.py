"""What `bench --device` measures: shapes, what they are held against and what they should reach; and what a device can do
by its own account."""
from dataclasses import dataclass

# Sets but the last are measured where none is asked for: "small" is for devices that are no GPU.
SETS = ("prefill", "decode", "small")
TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class DeviceCase:
    name: str
    set: str
    dtype: str
    queries: int
    keys: int
    batch: int = 1
    query_heads: int = 16
    kv_heads: int = 8
    dim: int = 128
    # (of what, at least): "share" of the limit, or "tflops".
    goals: tuple = ()

    @property
    def causal(self):
        return True

    @property
    def limit(self):
        """The name of what it is held against: a decode case reads, others multiply."""
        return "copy" if self.queries == 1 else self.dtype

    @property
    def title(self):
        what = f"{self.dtype}, S = {self.keys}" if self.queries > 1 else f"{self.dtype}, {self.keys} keys"
        return what + (f", B = {self.batch}" if self.batch > 1 else "") + (f", D = {self.dim}" if self.dim != 128 else "")

    def shape(self, device):
        """As read_shape() of autotune/shape.h has it."""
        return {"device": device, "dtype": self.dtype, "batch": self.batch, "query_heads": self.query_heads,
                "kv_heads": self.kv_heads, "query_length": self.queries, "kv_length": self.keys, "key_dim": self.dim,
                "causal": self.causal}


def _all():
    for length in (2048, 8192):
        yield DeviceCase(f"prefill_float32_s{length}", "prefill", "float32", length, length, goals=(("share", 0.5),))
    for dtype in TYPES[1:]:
        for length in (2048, 8192, 16384):
            goals = (("tflops", 200), ("tflops", 350)) if length >= 8192 else ()
            yield DeviceCase(f"prefill_{dtype}_s{length}", "prefill", dtype, length, length, goals=goals)
        for dim in (64, 256):
            yield DeviceCase(f"prefill_{dtype}_d{dim}", "prefill", dtype, 8192, 8192, dim=dim)
    for dtype in TYPES:
        yield DeviceCase(f"decode_{dtype}_k32768", "decode", dtype, 1, 32768, goals=(("share", 0.85),))
    yield DeviceCase("decode_bfloat16_k32768_b4", "decode", "bfloat16", 1, 32768, batch=4, goals=(("share", 0.85),))
    few = {"query_heads": 2, "kv_heads": 1, "dim": 64}
    for dtype in TYPES:
        yield DeviceCase(f"small_prefill_{dtype}", "small", dtype, 70, 70, **few)
    yield DeviceCase("small_decode_float32", "small", "float32", 1, 300, **few)


CASES = tuple(_all())

# Of one multiprocessor and clock, by compute capability: float32 multiply-adds (CUDA C++ Programming Guide, arithmetic
# instructions), and products of 16-bit numbers on tensor cores, summed in float32, of matrices that are not sparse (NVIDIA's
# papers on A100 and H100: 256 and 512 for each of four tensor cores). Other GPUs of one capability differ in these.
_FLOAT32_LANES = {"8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128, "12.0": 128}
_TENSOR_PRODUCTS = {"8.0": 4 * 256, "9.0": 4 * 512}


def nominal(device):
    """{type: operations per second that clock and units make}, of those that are known. device: from describe()."""
    units = {"float32": _FLOAT32_LANES, **dict.fromkeys(TYPES[1:], _TENSOR_PRODUCTS)}
    clocks = device.get("clock_hz", 0) * device["compute_units"]
    each = {dtype: 2 * rows.get(device["capability"], 0) * clocks for dtype, rows in units.items()}
    return {dtype: value for dtype, value in each.items() if value}
