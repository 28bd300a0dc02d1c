"""Compares the crates' dependencies on each other with the table in ARCHITECTURE.md. Standard input: `cargo metadata --no-deps`."""

import json
import re
import sys
from pathlib import Path

packages = {package["name"]: package for package in json.load(sys.stdin)["packages"]}
ours = {name for name in packages if name == "asof" or name.startswith("asof-")}
allowed = {}
for line in Path(sys.argv[1]).read_text().splitlines():
    row = re.fullmatch(r"\| `(asof[a-z-]*)` \|.*\| (.*) \|", line)
    if not row or row[1] not in packages:
        continue
    words = row[2]
    full = lambda name: name if name == "asof" else f"asof-{name}"
    if words == "–":
        allowed[row[1]] = set()
    elif words.startswith("all but "):
        allowed[row[1]] = ours - {full(word) for word in re.findall(r"[a-z]+", words[8:]) if word != "and"}
    else:
        allowed[row[1]] = {full(word) for word in re.findall(r"[a-z]+", words.split(",  with")[0])} & ours
published = {name for name in ours if packages[name].get("publish") is None}
missing = sorted(published - allowed.keys())
wrong = [f"{name} is not in the table" for name in missing]
for name, may in sorted(allowed.items()):
    uses = {
        dependency["name"]
        for dependency in packages[name]["dependencies"]
        if dependency["kind"] is None and dependency["name"] in ours
    }
    wrong += [f"{name} uses {other}, which the table does not allow" for other in sorted(uses - may)]
print("\n".join(wrong) or f"{len(allowed)} crates depend on each other as the table says")
sys.exit(bool(wrong))
