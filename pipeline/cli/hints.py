"""What `make up` prints at its end: addresses and three things to try."""

from pathlib import Path

from pipeline.supervisor.home import Home

from .options import settings
from .up import addresses


def main() -> None:
    state = Home(Path(settings().home)).read_state()
    if state is None:
        return
    edge = next(role["http"] for role in state["roles"] if role["role"] == "edge")
    print()
    for line in addresses(state):
        print(line)
    print(
        f"""
Three things to try:
  .venv/bin/headrace run "Write a haiku about rivers"
  curl -N {edge}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model":"smollm2-135m","stream":true,"max_tokens":64,
         "messages":[{{"role":"user","content":"Hi!"}}]}}'
  .venv/bin/headrace tail tokens        # watch the answers pass through Kafka

Stop it with `make down`."""
    )


if __name__ == "__main__":
    main()
