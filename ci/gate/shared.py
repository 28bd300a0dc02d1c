"""Says which dependencies builds do not share.

usage: shared.py FULL OTHER..., graphs of what cargo would compile. All that OTHER compiles of a package that FULL compiles too has
to be the same: its features, its profile, and all below it.
"""

import json
import sys

# Up to this many small crates may differ; only the large ones over tokio, serde and Arrow take long.
FEW = 20


def dependencies(path):
    """By identity (all that cargo makes its fingerprint of): the name, the kind and the features."""
    units = json.load(open(path))["units"]
    known = {}

    def identity(index):
        if index not in known:
            unit = units[index]
            profile = {key: value for key, value in unit["profile"].items() if key != "name"}
            below = sorted(identity(dependency["index"]) for dependency in unit["dependencies"])
            own = [unit["pkg_id"], unit["target"], unit["mode"], unit["platform"], sorted(unit["features"]), profile, below]
            known[index] = hash(json.dumps(own, sort_keys=True))
        return known[index]

    found = {}
    for index, unit in enumerate(units):
        if "registry+" in unit["pkg_id"]:
            name = unit["pkg_id"].split("#")[-1]
            found[identity(index)] = (name, unit["target"]["kind"][0], unit["mode"]), frozenset(unit["features"])
    return found


full = dependencies(sys.argv[1])
features = {}
for kind, own in full.values():
    features.setdefault(kind, []).append(own)
is_good = True
for path in sys.argv[2:]:
    others = dependencies(path)
    again = {key: value for key, value in others.items() if key not in full and value[0] in features}
    name = path.rsplit("/", 1)[-1]
    print(f"{name}: {len(others) - len(again)} of {len(others)} dependencies are those of the full build, or its own")
    if len(again) <= FEW:
        continue
    is_good = False
    for kind, own in sorted(again.values(), key=str):
        if own not in features[kind]:
            closest = max(features[kind], key=lambda other: len(other & own))
            print(f"  {kind[0]}: {name} has {sorted(own - closest)}, the full build {sorted(closest - own)}")
sys.exit(0 if is_good else "FAILED: name these features in ci/features/Cargo.toml")
