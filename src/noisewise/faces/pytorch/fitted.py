"""What a private fit of a module leaves behind, its folder, and weights read back without running anything of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...evidence.report.page import write_report
from ...evidence.runs import checked_contents, new_folder, put_json, readable, reseal
from ...statements.seal import FORMAT, TRACE_FORMAT
from ...statements.statement import Statement
from ...trusted.events import to_dict
from ...trusted.torch_extra import Tensor, torch
from ...trusted.units import Released

if TYPE_CHECKING:
    from torch.nn import Module

SOFTWARE = ("noisewise", "torch", "numpy")


@dataclass(frozen=True, eq=False)
class FittedModule:
    """A module that was trained privately, with its statement and trace.

    ``size`` is the number of records as declared or bought; ``settings`` are what was asked for, as plain data.
    """

    module: Module
    statement: Statement
    trace: tuple[Released, ...]
    steps: int
    size: float | None
    settings: Mapping[str, Any]
    path: str  # where the module's code comes from, as text

    def predict(self, inputs: Tensor | tuple[Tensor, ...], *, batch_size: int = 512) -> Tensor:
        """The module's outputs in eval mode, for a tensor of inputs or a tuple of them."""
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        first = next(self.module.parameters())
        modes = {part: part.training for part in self.module.modules()}
        self.module.eval()
        try:
            with torch.no_grad():
                found = [
                    self.module(*(_like(part[at : at + batch_size], first) for part in parts)).cpu()
                    for at in range(0, max(len(parts[0]), 1), batch_size)
                ]
        finally:
            for part, training in modes.items():
                part.training = training
        return torch.cat(found)

    def save(self, folder: str | Path, *, report: bool = True) -> Path:
        """Write a run folder, all of it or nothing: weights by their names, statement, trace, settings and a report."""
        from safetensors.torch import save as as_tensors

        weights = {name: part.detach().cpu().clone().contiguous() for name, part in self.module.state_dict().items()}
        rows = [{**row._asdict(), "event": to_dict(row.event)} for row in self.trace]
        with new_folder(folder) as place:
            (place / "model.safetensors").write_bytes(as_tensors(weights))
            put_json(place / "run.json", self._document())
            put_json(place / "trace.json", {"format": TRACE_FORMAT, "rows": rows})
            (place / "statement.json").write_text(self.statement.to_json() + "\n", encoding="utf-8")
            (place / "statement.txt").write_text(f"{self.statement}\n", encoding="utf-8")
            reseal(place)
            if report:
                write_report(place)
        return Path(folder)

    def _document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "estimator": "fit",
            "module": self.path,
            "settings": dict(self.settings),
            "target": "a torch module",
            "classes": None,
            "probabilities": False,
            "features": [],
            "preprocessing": {},
            "model": self.statement.data["model"],
            "steps": self.steps,
            "size": self.size,
            "coefficients": None,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "software": {name: version(name) for name in SOFTWARE},
            "warnings": [],
        }


def load_module(folder: str | Path, module: Module) -> Module:
    """Put the weights of a run folder into ``module``, which is made by code of your own, and return it.

    Nothing in the folder is executed: ``run.json`` names the module's class as text, and importing it is up to you. A
    folder whose files were changed is refused, and so are weights of other names or shapes.
    """
    from safetensors.torch import load as tensors_in

    place = Path(folder)
    contents = checked_contents(place)
    with readable(place):
        weights = tensors_in(contents["model.safetensors"])
        own = {name: part.shape for name, part in module.state_dict().items()}
        if own != {name: part.shape for name, part in weights.items()}:
            odd = sorted(
                name
                for name in {*own, *weights}
                if name not in own or name not in weights or own[name] != weights[name].shape
            )
            raise ValueError(
                f"its weights are of another module: {', '.join(odd[:3])} differ; make one like the trained one"
            )
        module.load_state_dict(weights)
    return module


def _like(part: Tensor, first: Tensor) -> Tensor:
    return part.to(first.device, first.dtype if part.is_floating_point() else None)
