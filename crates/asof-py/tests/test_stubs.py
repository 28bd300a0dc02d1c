"""The stubs of the extension say what is in it: no more, no less."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import asof
import pytest
from asof import _asof

STUB = Path(asof.__file__).with_name("_asof.pyi")
#: What every object has, or Python makes of other methods.
EVERYWHERE = set(dir(object)) | {"__module__", "__getattr__", "__new__", "__bool__", "__len__", "__iter__", "__contains__"}


def stub_names(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_") or name.startswith("__")}


def own(thing: object) -> set[str]:
    return {name for name in vars(thing) if not name.startswith("_") or name.startswith("__")} - EVERYWHERE


TREE = ast.parse(STUB.read_text())
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}


def test_the_module_has_what_its_stub_says():
    module = own(_asof) - {"__doc__", "__file__", "__loader__", "__name__", "__package__", "__spec__", "__all__"}
    assert stub_names(TREE.body) == module


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_what_its_stub_says(name):
    told = stub_names(CLASSES[name].body) - EVERYWHERE
    assert told <= set(dir(getattr(_asof, name))), "the stub says more"
    missing = {one for one in own(getattr(_asof, name)) - told if not one.startswith("__")}
    assert not missing, "the stub says less"


def test_every_argument_has_its_name():
    for node in ast.walk(TREE):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
            continue
        owner = next((cls for cls, tree in CLASSES.items() if node in tree.body), None)
        found = getattr(getattr(_asof, owner), node.name) if owner else getattr(_asof, node.name)
        text = getattr(found, "__text_signature__", None)
        if text is None:
            continue
        given = [one.strip().split("=")[0] for one in text.strip("()").split(",")]
        told = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        without = {"", "self", "$self", "cls", "/", "*", "*args", "**kwargs"}
        assert [one for one in told if one not in without] == [one for one in given if one not in without], node.name


def test_the_package_is_typed():
    assert STUB.with_name("py.typed").exists()
    mypy = pytest.importorskip("mypy.stubtest", reason="mypy is not installed")
    allowed = Path(__file__).with_name("stubs_allowed.txt")
    done = subprocess.run(
        [sys.executable, "-m", mypy.__name__, "--allowlist", str(allowed), "asof._asof"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_public_names_say_what_they_are():
    for name in asof.__all__:
        thing = getattr(asof, name)
        assert name.startswith("__") or thing.__doc__, name
