"""`softspin cache`: the folder of compiled code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin import compile_cache
from softspin.cli.console import say, say_json
from softspin.cli.options import Json

app = typer.Typer(help="Show, clear, export and import compiled code.", no_args_is_help=True)

Archive = Annotated[Path, typer.Argument(help="Archive, such as compiled.tar.gz.", show_default=False)]


@app.command()
def show(json: Json = False) -> None:
    """Show the folder of compiled code and its size."""
    folder, size = compile_cache.compiled_folder(), compile_cache.size()
    if json:
        say_json({"folder": str(folder), "bytes": size})
    else:
        say(f"{folder}: {size / 1e6:,.1f} MB")


@app.command()
def clear() -> None:
    """Delete the compiled code. The next run compiles again."""
    compile_cache.clear()
    say(f"{compile_cache.compiled_folder()} is empty")


@app.command()
def export(file: Archive) -> None:
    """Write the compiled code to one file, for another computer with the same kind of GPU and the same packages."""
    compile_cache.export(file)
    say(f"{file}: {file.stat().st_size / 1e6:,.1f} MB")


@app.command("import")
def restore(file: Archive) -> None:
    """Add exported code to the folder. The code is run in later trainings: import only files that you trust."""
    compile_cache.restore(file)
    show()
