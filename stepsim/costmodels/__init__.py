"""Cost models: fit on a trace, predict seconds. A Calibration holds those of one machine."""

from stepsim.costmodels.calibration import Calibration
from stepsim.costmodels.datasheet import DataSheetCosts
from stepsim.costmodels.given import GivenCosts
from stepsim.costmodels.recorded import RecordedCosts

__all__ = ["Calibration", "DataSheetCosts", "GivenCosts", "RecordedCosts"]
