"""Values of options, for argparse."""

import argparse
import math


def positive(text):
    """A number of things."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, but is {value}")
    return value


def positive_seconds(text):
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"must be a number above 0, but is {value:g}")
    return value
