"""What tests of tuning share: shapes that take no time, and entries of databases."""

import numpy as np

import hattn
from hattn import cli
from hattn._tuning import database

SMALL = [
    {"query_heads": 4, "kv_heads": 2, "query_length": 1, "kv_length": 300, "key_dim": 32},
    {"query_heads": 2, "kv_heads": 2, "query_length": 40, "kv_length": 60, "key_dim": 16, "value_dim": 24},
]


def tune(*arguments):
    """Runs the command line."""
    return cli.main(["tune", "--threads", "1", "--budget", "1s", *map(str, arguments)])


def arrays_of(rng, shape):
    """q, k and v of a shape."""

    def array(heads, rows, size):
        return rng.standard_normal((1, heads, rows, size), np.float32)

    keys = shape["kv_heads"], shape["kv_length"]
    return (
        array(shape["query_heads"], shape["query_length"], shape["key_dim"]),
        array(*keys, shape["key_dim"]),
        array(*keys, shape.get("value_dim", shape["key_dim"])),
    )


def entry_for(arrays, algorithm, invariant=False, **options):
    """An entry that gives the arrays' class to an algorithm, as it is by default."""
    plan = hattn.explain(*arrays, algorithm=algorithm, **options)
    choice = {name: plan[name] for name in ("algorithm", "tile", "split_keys")}
    problem_class = hattn.explain(*arrays, **options)["class"]
    return {"class": problem_class, "choice": {**choice, "heads": 0}, "gain": 1.25, "invariant": invariant}


def stays(number, choice=None):
    """An entry of a class of its own, in which the default stays."""
    problem_class = {
        "algorithm": "auto",
        "dtype": "float32",
        "head": 64,
        "group": 2 ** (number // 100),
        "hooks": [],
        "target": "generic",
        "rows": 2 ** (number % 10),
        "keys": 2 ** (number // 10 % 10),
        "threads": 0,
    }
    return {"class": problem_class, "choice": choice, "gain": 1.0, "invariant": False}


def chooses(algorithm):
    """A choice that is whole, whether or not any kernel has its tile."""
    tile = {"rows": 8, "keys": 0, "row_vectors": 1, "key_unroll": 8, "value_unroll": 8}
    return {"algorithm": algorithm, "tile": tile, "split_keys": 0, "heads": 1}


def keys_of(path):
    """The classes of a database's entries."""
    return sorted(database.class_key(entry) for entry in database.read(path))


def keys(*numbers):
    """The classes of such entries."""
    return sorted(database.class_key(stays(number)) for number in numbers)
