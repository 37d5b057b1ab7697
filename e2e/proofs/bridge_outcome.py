"""What came of a run, for a reader, and for docs/bridge.md."""

import datetime
from collections import Counter
from dataclasses import dataclass, field

import rejoin

DOCUMENT = rejoin.peers.HERE.parent / "docs" / "bridge.md"
FAULTS_SHOWN, LOG_BYTES_SHOWN = 12, 3_000


@dataclass
class Outcome:
    """One run: its figures, and what is wrong."""

    run: str
    columns: tuple
    figures: Counter = field(init=False)
    faults: list = field(default_factory=list)
    # What the connections met, by kind.
    met: Counter = field(default_factory=Counter)
    log: str = ""

    def __post_init__(self):
        self.figures = Counter(dict.fromkeys(self.columns, 0))

    def lines(self):
        """It; what the programs said only if something is wrong."""
        said = [f"{self.figures[column]} {column}" for column in self.columns]
        lines = [f"{self.run}: {', '.join(said)}"]
        if self.met:
            met = [f"{count} {kind}" for kind, count in sorted(self.met.items())]
            lines.append(f"    {sum(self.met.values())} connections broke: {', '.join(met)}")
        lines += [f"    FAULT: {fault}" for fault in self.faults[:FAULTS_SHOWN]]
        if self.faults:
            lines += [f"    {len(self.faults)} faults; the end of its log:",
                      *self.log[-LOG_BYTES_SHOWN:].splitlines()]
        return lines


def table(outcomes):
    """The runs of a part in Markdown."""
    columns = outcomes[0].columns
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    rows += [[one.run, *(str(one.figures[column]) for column in columns)] for one in outcomes]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write(part, outcomes, command):
    """Puts the table of a part into the document, with its command and the date."""
    begin, end = f"<!-- begin: {part} -->", f"<!-- end: {part} -->"
    before, found, rest = DOCUMENT.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{DOCUMENT} has not both markers, {begin} and {end}")
    said = f"`{command}`, {datetime.date.today()}:"
    DOCUMENT.write_text(f"{before}{begin}\n{said}\n\n{table(outcomes)}\n{end}{after}")
