"""How faults come into a training from outside: Python runs this file at its start when its folder is on PYTHONPATH.

`bringup drill` puts the folder there, and sets BRINGUP_DRILL. Then rank_faults.py changes the modules of the training
package (`recipe`) as they are imported. The training programs know nothing of it. Without both variables this file is
not run, or does nothing.

By hand, in a run folder of your own:
    PYTHONPATH=training/injected BRINGUP_DRILL=kill-rank:1@4 torchrun ... training/src/train_ddp_single_node.py ...

Any Python of the job may run this file, also that of the system (3.6 or newer).
"""

import os
import sys

OF_THE_SAMPLER = ("stop-monitor:", "busy-monitor:")  # probes/faults.py makes these

requested = os.environ.get("BRINGUP_DRILL", "")
if requested and not requested.startswith(OF_THE_SAMPLER):
    from importlib.machinery import PathFinder

    class WithFaults:
        """Finds a module of the training package where it is, and has it changed after it was executed."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            spec = PathFinder.find_spec(name, path) if name.startswith("recipe.") else None
            if spec is None or spec.loader is None:
                return None
            execute = spec.loader.exec_module

            def execute_and_change(module):
                execute(module)
                import rank_faults

                rank_faults.inject(module)

            spec.loader.exec_module = execute_and_change
            return spec

    sys.meta_path.insert(0, WithFaults)
