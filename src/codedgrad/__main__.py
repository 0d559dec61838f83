"""Lets `python -m codedgrad` be the command line."""

from codedgrad.cli import main

if __name__ == "__main__":
    main()
