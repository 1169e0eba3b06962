"""The command line of decoding: flags in, text out, exit code. The text goes to standard output and nothing else does.

Imports torch only when there is something to run.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from model.errors import CacheError, CheckpointError, ConfigError, InputError

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 2
EXIT_INTERNAL = 3
EXIT_USAGE = 4

Ledger = Callable[[str, str], Mapping[str, Any]]
"""Architecture (sm90, sm100) and kind of evidence (emulated, cuda) to what is proven there, by gate."""

_EPILOG = """exit codes
  0  decoded                     3  internal error of the tool
  1  the device gave up          4  usage, configuration, checkpoint or prompt
  2  interrupted

examples
  python run_decode.py                                       a small random model, in seconds, on any machine
  python run_decode.py --prompt "ids:0 5 7" --max-new 20     token ids instead of text
  python run_decode.py --mode chat --prompt Hi --prompt Why  two turns of one conversation
  python run_decode.py --mtp --report                        with the draft block; result.json and summary.md
"""


class UsageError(ValueError):
    """A flag or value that cannot be used."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (run_decode.py --help lists the flags)")


def main(argv: Sequence[str], ledger: Ledger) -> int:
    """Decode as the flags say; gives the exit code. Refusals go to standard error, with the values."""
    try:
        options = parse(argv)
        from model.decoding import decode

        return decode(options, ledger)
    except (UsageError, ConfigError, CheckpointError, CacheError, InputError) as error:
        print(f"run_decode.py: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("\nrun_decode.py: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; the interpreter must not complain about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except RuntimeError as error:
        if not _of_the_device(error):
            traceback.print_exc()
            return EXIT_INTERNAL
        print(f"run_decode.py: {type(error).__name__}: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Exception:
        traceback.print_exc()
        print("run_decode.py: this is a bug of the tool; please report it with the lines above", file=sys.stderr)
        return EXIT_INTERNAL


def _of_the_device(error: RuntimeError) -> bool:
    """Out of memory, or a fault of the accelerator."""
    return type(error).__name__ in ("OutOfMemoryError", "AcceleratorError") or "CUDA" in str(error)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The flags as a namespace. Raises UsageError for an unknown flag, a wrong value, or flags that exclude each
    other."""
    options = _build().parse_args(argv)
    if options.mtp and options.drafts is None:
        options.drafts = 1
    if options.drafts and not options.mtp:
        raise UsageError(f"--drafts {options.drafts} has a meaning only with --mtp")
    if options.checkpoint is None and options.config not in (None, "tiny"):
        raise UsageError(f"--config {options.config} needs --checkpoint: only tiny has weights of its own")
    if options.mode == "raw" and len(options.prompt or ()) > 1:
        raise UsageError(f"{len(options.prompt)} times --prompt are turns; --mode raw has none: chat or thinking")
    return options


def _build() -> _Parser:
    parser = _Parser(
        prog="run_decode.py",
        description="Generate with DeepSeek-V4: kernels where their gates are proven, PyTorch oracles elsewhere.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    model = parser.add_argument_group("model")
    model.add_argument("--config", metavar="NAME", help="tiny, flash, pro, or a config.json (default: checkpoint's)")
    model.add_argument("--checkpoint", metavar="DIR", help="folder of .safetensors (default: a small random one)")
    model.add_argument(
        "--precision",
        choices=["native", "fp32", "bf16", "nvfp4", "nvfp4_full"],
        help="of weights: as stored (default), or converted on loading (default of the small model on a CPU: fp32)",
    )
    model.add_argument(
        "--activations",
        choices=["fp32", "bf16", "fp8", "nvfp4"],
        help="default: fp32 on a CPU, bf16 on a GPU; fp8, nvfp4: bf16, but inputs of linears stored so",
    )
    model.add_argument("--entries", choices=["fp32", "bf16", "fp8"], help="cached keys (default: as activations)")
    model.add_argument("--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:1 (default: a GPU if any)")
    model.add_argument("--arch", choices=["sm90", "sm100"], help="whose kernels (default: the GPU's, else sm100)")
    model.add_argument("--no-kernels", dest="kernels", action="store_false", help="PyTorch oracles for all operations")

    text = parser.add_argument_group("prompt")
    text.add_argument(
        "--prompt", action="append", metavar="TEXT", help="text, or 'ids:0 5 7'; again for a further turn"
    )
    text.add_argument("--system", metavar="TEXT", help="system message of chat and thinking mode")
    text.add_argument("--mode", choices=["raw", "chat", "thinking"], default="raw", help="prompt layout")
    text.add_argument("--max-new", type=_positive, default=64, metavar="N", help="most new tokens of a reply")
    text.add_argument("--tokens", type=_positive, metavar="N", help="tokens the cache holds (default: as needed)")
    text.add_argument("--chunk", type=_positive, metavar="N", help="most prompt tokens of one step")
    text.add_argument("--ignore-eos", action="store_true", help="go on behind the end of the sequence")

    how = parser.add_argument_group("sampling and speculation")
    how.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (default)")
    how.add_argument("--top-p", type=float, default=1.0, metavar="P", help="of the most probable tokens (default: 1)")
    how.add_argument("--seed", type=_natural, default=0, metavar="N", help="the same seed, the same text")
    how.add_argument("--mtp", action="store_true", help="draft with the block of multi-token prediction")
    how.add_argument("--drafts", type=_positive, metavar="N", help="guesses a step (default with --mtp: 1)")

    output = parser.add_argument_group("output")
    output.add_argument(
        "--report", nargs="?", const="build/decode", metavar="DIR", help="result.json and summary.md (build/decode)"
    )
    output.add_argument("-q", dest="quiet", action="store_true", help="the text alone")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def _natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 0")
    return int(text)
