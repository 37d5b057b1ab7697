"""The scenarios: the columns of the table."""

from compatibility.losses import Cut, CutEarly, RepeatFinished, RepeatRunning
from compatibility.ordinary import (
    CallTool, Cancel, Failing, List, Progress, ServerRequest,
)

ALL = {
    scenario.name: scenario
    for scenario in (
        List(), CallTool(), Progress(), ServerRequest(), Cancel(), Failing(), Cut(),
        RepeatRunning(), RepeatFinished(), CutEarly(),
    )
}
