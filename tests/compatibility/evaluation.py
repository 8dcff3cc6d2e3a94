"""`python evaluation.py FOLDER BACKEND`: scores the tasks in a folder by lm-evaluation-harness, in
its environment, and writes BACKEND.json: its results, and what it found for each choice.

FOLDER/BACKEND.args.json has the arguments of the backend, `ours` a folder of packages that come
after its own.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

folder, backend = Path(sys.argv[1]), sys.argv[2]
given = json.loads((folder / f"{backend}.args.json").read_text())
sys.path.append(given.pop("ours"))
manager = import_module("lm_eval.tasks").TaskManager(
    include_path=str(folder), include_defaults=False
)
tasks = sorted(path.stem for path in folder.glob("*.yaml"))
found = import_module("lm_eval").simple_evaluate(
    backend, given, tasks=tasks, task_manager=manager, bootstrap_iters=0
)
scores = {name: [one["filtered_resps"] for one in found["samples"][name]] for name in tasks}
(folder / f"{backend}.json").write_text(
    json.dumps({"results": found["results"], "scores": scores}, default=str)
)
