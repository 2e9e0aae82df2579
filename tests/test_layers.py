"""What the import contracts cannot say: what is really loaded when something runs."""

from pathlib import Path

import gristmill
from tests import toy

BLOCKED = """
import sys

class Absent:
    names = {names}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{{name}} is not to be loaded here", name=name)

sys.meta_path.insert(0, Absent())
"""


def test_the_whole_chain_runs_where_neither_dagster_nor_dvc_can_be_imported(tmp_path: Path) -> None:
    toy.workspace(tmp_path)
    code = BLOCKED.format(names={"dagster", "dvc"}) + (
        "from gristmill import plan\n"
        "from gristmill.workspace import Workspace\n"
        "workspace = Workspace.find()\n"
        "declaration = workspace.pipeline('toy')\n"
        "for stage in plan.STAGES:\n"
        "    outcome = plan.perform(workspace, declaration, stage, 'bare')\n"
        "    assert outcome.record.passed, outcome.record.checks\n"
        "print(outcome.record.stage)\n"
    )
    ran = toy.call(tmp_path, "python", "-c", code)
    assert ran.stdout == "model\n", ran.stderr


def test_training_needs_torch_numpy_and_pandas_alone(tmp_path: Path) -> None:
    # As on a machine with a GPU that has nothing else of ours.
    absent = {"dagster", "dvc", "duckdb", "ibis", "pandera", "pydantic", "ruamel", "typer"}
    code = BLOCKED.format(names=absent) + (
        "import types, torch\n"
        "from pathlib import Path\n"
        "from gristmill.models.mlp import Mlp, Shape\n"
        "from gristmill.training import loop\n"
        "settings = types.SimpleNamespace(epochs=2, batch_size=8, clip_norm=1.0, seed=0,\n"
        "    optimizer=types.SimpleNamespace(lr=1e-3, weight_decay=0.0),\n"
        "    schedule=types.SimpleNamespace(name='constant'),\n"
        "    early_stopping=types.SimpleNamespace(patience=5))\n"
        "rows = loop.Rows(torch.randn(32, 3), torch.zeros(32, 0, dtype=torch.long),\n"
        "    torch.arange(32) % 2, torch.arange(32))\n"
        "model = Mlp(Shape(3, (), 2, (8,), 0.1))\n"
        "trained = loop.train(model, torch.nn.CrossEntropyLoss(), rows, rows, settings, Path('checkpoints'))\n"
        "print(len(trained.history))\n"
    )
    ran = toy.call(tmp_path, "python", "-c", code)
    assert ran.stdout == "2\n", ran.stderr


def test_importing_gristmill_loads_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); import gristmill; "
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('gristmill')))"
    )
    loaded = eval(toy.call(tmp_path, "python", "-c", code).stdout)
    assert not {"torch", "numpy", "pandas", "dagster", "dvc", "pydantic"} & set(loaded)


def test_the_public_names_are_few_and_are_there() -> None:
    assert gristmill.__all__ == ["Bundle", "Pipeline", "__version__", "load_model"]
    for name in gristmill.__all__:
        assert getattr(gristmill, name) is not None
    assert dir(gristmill) == gristmill.__all__
