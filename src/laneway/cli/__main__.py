"""`python -m laneway.cli`: the `laneway` command where its script is not on the path."""

from laneway.cli import main

if __name__ == "__main__":
    main()
