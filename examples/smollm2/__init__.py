"""SmolLM2-135M-Instruct in NumPy, with hattn doing all attention and RoPE.

demo.py is the command; model.py the decoder, chat.py the text side, attention.py the hattn side, reference.py the same
model in float64 without hattn.
"""


class InputError(Exception):
    """The model file, or what the user asked for, cannot be run. The message is meant for the user."""
