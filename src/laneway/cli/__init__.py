"""The `laneway` command."""


def main() -> None:
    raise SystemExit(2)
