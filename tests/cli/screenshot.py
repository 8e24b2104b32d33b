"""Draws docs/images/terminal.svg from a real chat: python -m tests.cli.screenshot"""

import re
import tempfile
from io import StringIO
from itertools import groupby
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from .running import script
from .terminals import terminal

TARGET = Path(__file__).parents[2] / "docs" / "images" / "terminal.svg"
WITHOUT_FONTS = re.sub(r"@font-face \{\{.*?\}\}\n|<!--.*?-->\n?", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""A picture in a README should fetch nothing from elsewhere."""


def style_of(cell):
    is_hex = len(cell.fg) == 6 and all(c in "0123456789abcdef" for c in cell.fg)
    colour = f"#{cell.fg}" if is_hex else cell.fg.replace("brown", "yellow").replace("bright", "bright_")
    return f"bold {colour}" if cell.bold else colour


def draw(screen):
    console = Console(record=True, width=screen.columns, file=StringIO(), force_terminal=True)
    last = max(y for y in range(screen.lines) if screen.display[y].strip())
    for y in range(last + 1):
        line = Text()
        for style, cells in groupby((screen.buffer[y][x] for x in range(screen.columns)), style_of):
            line.append("".join(cell.data for cell in cells), style=style)
        line.rstrip()
        console.print(line)
    return console.export_svg(title="turnlog chat", code_format=WITHOUT_FONTS)


def main():
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "rent.txt").write_text("flat: Elm Street 5\nrent: 900 EUR\ndue: the 3rd\n", encoding="utf-8")
        call = {"id": "c1", "name": "read_file", "input": {"path": "rent.txt"}}
        answer = "The rent is **900 EUR** a month.\n\n| what | when |\n|---|---|\n| rent | the 3rd |\n"
        model = script(home, {"tool_calls": [call]}, {"text": answer}, {"text": "Noted: `Elm Street 5`."})
        with terminal("chat", "--model", model, home=home, columns=84, rows=26) as t:
            t.prompt()
            t.say("how much is the rent? it is in rent.txt")
            t.say("remember the address")
            t.say("/context")
            t.read(0.5)
            TARGET.write_text(draw(t.screen), encoding="utf-8")


if __name__ == "__main__":
    main()
