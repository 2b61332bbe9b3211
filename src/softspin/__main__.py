"""`python -m softspin` is the command line."""

from softspin.cli import main

if __name__ == "__main__":
    main()
