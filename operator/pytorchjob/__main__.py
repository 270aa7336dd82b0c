"""`python -m pytorchjob`."""

from pytorchjob.cli import main

if __name__ == "__main__":
    main(prog_name="pytorchjob")
