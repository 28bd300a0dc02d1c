"""Runs a notebook from its first cell to its last; any error in it is one here.

With --write, what came out is put into the file: pictures and all.
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

path = Path(sys.argv[1])
notebook = nbformat.read(path, as_version=4)
with tempfile.TemporaryDirectory() as folder:
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.execute()
outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
pictures = [output for output in outputs if "image/png" in output.get("data", {})]
if not pictures:
    sys.exit(f"{path}: it ran, and drew nothing")
if "--write" in sys.argv:
    for cell in notebook.cells:
        # The time of execution is removed: it changes with each run.
        cell.metadata.pop("execution", None)
    nbformat.write(notebook, path)
print(f"{path}: {len(notebook.cells)} cells, {len(pictures)} pictures")
