"""`python -m pipeline.embedded --dir DIR`: serve the log in DIR to any Kafka client."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from pathlib import Path

import uvloop

# kio registers test strategies when hypothesis is there: 0.2 s and 20 MB of no use to a broker
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

from pipeline.embedded.errors import StartError  # noqa: E402
from pipeline.embedded.server import serve  # noqa: E402

_TEMPORARY_FAILURE = 75  # EX_TEMPFAIL of sysexits.h: somebody has to act, then it starts


def main() -> int:
    """Run until told to stop; the first line on stdout is the address that clients use."""
    arguments = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")

    def ready(port: int) -> None:
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        print(arguments.advertise or f"{host}:{port}", flush=True)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(
                serve(
                    arguments.dir,
                    arguments.host,
                    arguments.port,
                    advertise=arguments.advertise,
                    fsync=arguments.fsync,
                    ready=ready,
                )
            )
    except StartError as error:
        print(f"headrace broker: {error}", file=sys.stderr)
        return _TEMPORARY_FAILURE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipeline.embedded", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="where the log is kept")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=19092, help="port to listen on, 0 for any")
    parser.add_argument("--advertise", metavar="HOST:PORT", help="address that clients are told")
    parser.add_argument("--fsync", action="store_true", help="keep records through a power loss")
    return parser


if __name__ == "__main__":
    sys.exit(main())
