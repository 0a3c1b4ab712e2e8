"""What every benchmark prints first: the machine and the commit, so that a figure can be judged."""

import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def describe() -> str:
    return f"machine: {machine()} · commit {commit()}"


def machine() -> str:
    return f"{_cpu()}, {os.cpu_count()} cores · Python {platform.python_version()}"


def commit() -> str:
    """The short hash; `+changes` where the tree differs from it."""
    found = _git("rev-parse", "--short", "HEAD") or "none"
    return found + ("+changes" if _git("status", "--porcelain", "--untracked-files=no") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip()


def model_file() -> Path:
    """Where `headrace models pull smollm2-135m` has put the model."""
    home = Path(os.environ.get("HEADRACE_HOME", ROOT / ".headrace"))
    return home / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [f"\n{title}\n", "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
