"""The table of docs/compatibility.md, written from what a whole run measured."""

import json
from collections import Counter

import peers
from compatibility import clients, eras, outcomes, restarts, scenarios, servers
from compatibility.seen import REFUSALS

PATH = peers.HERE.parent / "docs" / "compatibility.md"
BEGIN = "<!-- begin: written by `python3 e2e/run.py --all --write` -->"
END = "<!-- end -->"
LETTERS = {
    outcome: "abcdefghijklmnopqrst"[position]
    for position, outcome in enumerate(one for one in outcomes.ALL if one is not outcomes.OK)
}


def committed():
    """The table that the document has now."""
    return PATH.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def write(table):
    """Puts a table into the document."""
    before, begin, rest = PATH.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PATH} has not both markers, {BEGIN} and {END}")
    PATH.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")


def table(results):
    """All of it, from the results of every cell."""
    results = sorted(results, key=place)
    cells = [result for result in results if result.scenario.name in scenarios.ALL]
    restarted = [result for result in results if result.scenario.name in restarts.ALL]
    guarded = [result for result in cells if result.cell.is_guarded]
    passed = [result for result in cells if not result.cell.is_guarded]
    counts = Counter(result.outcome.verdict for result in cells)
    resuming = [name for name, client in clients.ALL.items() if client.resumes]
    others = [name for name in clients.ALL if name not in resuming]
    parts = [
        f"{len(cells)} cells: {counts[outcomes.WORKS]} work, {counts[outcomes.DEGRADES]} degrade, "
        f"{counts[outcomes.CANNOT]} cannot be. These clients resume a call: {quoted(resuming)}. "
        f"These never do: {quoted(others)}.",
        "### The clients\n\n" + the_clients(),
        "### The scenarios\n\n" + the_scenarios(),
        "### Clients with a session: guarded\n\n" + by_client(guarded),
        "### Clients that speak 2026-07-28: passed through\n\n"
        + f"To {quoted(name for name, server in servers.ALL.items() if server.is_dual_era)}, which "
        "answer both eras; to the other servers these clients speak 2025-11-25, and are above.\n\n"
        + by_client(passed) + "\n\n" + at_once(results),
        "### When Rejoin is started again\n\n" + by_restart(restarted),
        "### What degrades, and what cannot be\n\n" + legend([*cells, *restarted]),
        "### The servers\n\n" + the_servers(),
        "With how many of the clients that have a session each works; where not with all: works / "
        "degrades / cannot.\n\n" + by_server(guarded),
        "What does not apply:\n\n" + missing(),
    ]
    return "\n\n".join(parts)


def place(result):
    """Where a result stands, whenever it came."""
    names = (result.cell.client.name, result.cell.server.name, result.scenario.name)
    every = [*scenarios.ALL, eras.SCENARIO.name, *restarts.ALL]
    orders = (list(clients.ALL), list(servers.ALL), every)
    return tuple(order.index(name) for order, name in zip(orders, names))


def quoted(names):
    """Names, as code."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names))


def at_once(results):
    """What came of both eras at one endpoint at the same time."""
    own = [result for result in results if result.scenario is eras.SCENARIO]
    found = quoted(one.cell.server.name for one in own if one.outcome is outcomes.OK)
    return (
        f"Both eras at once: while a call of `{eras.GUARDED}` is cut, resumed and runs on in its "
        f"session, {quoted(eras.MODERN)} list, call and get progress at the same endpoint. Works "
        f"with {found}."
    )


def by_client(results, columns=scenarios.ALL):
    """Clients x scenarios: what comes of it at most servers, and a star where some differ."""
    rows = []
    for name in clients.ALL:
        own = [result for result in results if result.cell.client.name == name]
        if own:
            rows.append([f"`{name}`", *(most(own, scenario) for scenario in columns)])
    return grid(["", *columns], rows)


def by_restart(results):
    """What comes of calls when Rejoin ends and is started again."""
    words = grid(["", "what happens"], [[one.name, one.words] for one in restarts.ALL.values()])
    return (
        f"With `--data DIR`, in front of `{restarts.Restart.servers[0]}` and with "
        f"`{restarts.STATELESS}` where nothing else is said, on the same port "
        f"{restarts.DOWN_SECONDS} s later.\n\n{words}\n\n{by_client(results, restarts.ALL)}"
    )


def most(results, scenario):
    """The cell of a client."""
    seen = Counter(one.outcome for one in results if one.scenario.name == scenario)
    if not seen:
        return "–"
    outcome = seen.most_common(1)[0][0]
    letter = "" if outcome is outcomes.OK else f" {LETTERS[outcome]}"
    others = "".join(f", {LETTERS[one]}" for one in seen if one not in (outcome, outcomes.OK))
    return f"{outcome.verdict}{letter}{others}"


def by_server(results):
    """Servers x scenarios: for how many clients it works, degrades and cannot be."""
    rows = []
    for name, server in servers.ALL.items():
        row = [f"`{name}`"]
        for scenario in scenarios.ALL:
            own = [
                one.outcome.verdict for one in results
                if one.cell.server.name == name and one.scenario.name == scenario
            ]
            counts = [own.count(verdict) for verdict in
                      (outcomes.WORKS, outcomes.DEGRADES, outcomes.CANNOT)]
            if scenario in server.lacks:
                row.append("–")
            elif counts[0] == len(own):
                row.append(str(len(own)))
            else:
                row.append(" / ".join(map(str, counts)))
        rows.append(row)
    return grid(["", *scenarios.ALL], rows)


def legend(results):
    """Each outcome other than that it works: what it is, and whose."""
    rows = []
    for outcome, letter in LETTERS.items():
        own = [result for result in results if result.outcome is outcome]
        if own:
            where = ["; ".join(dict.fromkeys(one.scenario.name for one in own)),
                     quoted(one.cell.client.name for one in own),
                     listed_servers(own, results)]
            text = f"**{outcome.name}** ({outcome.verdict}). {outcome.words}"
            rows.append([letter, text, *where])
    return grid(["", "what happens", "in", "clients", "servers"], rows)


def listed_servers(own, results):
    """The servers of some results: all that these clients met in these scenarios, or by name."""
    def key(result):
        return result.cell.client.name, result.scenario.name, result.cell.is_guarded

    keys = {key(result) for result in own}
    met = {result.cell.server.name for result in results if key(result) in keys}
    found = {result.cell.server.name for result in own}
    names = quoted(name for name in servers.ALL if name in found)
    return "all" if found == met and len(met) > 1 else names


def missing():
    """The scenarios that a server can have no part in."""
    reasons = {}
    for name, server in servers.ALL.items():
        for scenario, reason in server.lacks.items():
            reasons.setdefault((scenario, reason), []).append(f"`{name}`")
    rows = [[scenario, ", ".join(names), reason] for (scenario, reason), names in reasons.items()]
    return grid(["scenario", "servers", "why"], rows)


def the_clients():
    """Who is who, and what an application of each reads when its repeat is refused."""
    rows = []
    for name, client in clients.ALL.items():
        peer = peers.CLIENTS[name]
        said = f"{peer.registry} `{peer.package}` {peer.version}"
        if client.words:
            said += f", {client.words}"
        resumes = "yes" if client.resumes else "**never**"
        rows.append([f"`{name}`", said, resumes, client.refusal.words])
    texts = [f"- {code}: *{text}*" for code, text in sorted(REFUSALS.values())]
    return "\n\n".join((
        grid(["", "package", "resumes a call", "a refused repeat reads"], rows),
        "The message, or the one in the body, of a repeat while the first one runs (40902), and "
        "when it has ended and its answer is still to come (40901):",
        "\n".join(texts),
    ))


def the_servers():
    """Who is who."""
    rows = []
    for name, server in servers.ALL.items():
        registry, package = server.package
        said = f"{registry} `{package}` {servers.version(registry, package)}".strip()
        if server.words:
            said = f"{server.words} on {said}" if registry else server.words
        reached = "HTTP: `--upstream URL`" if server.is_http else "stdio: `-- COMMAND`"
        revisions = "both eras" if server.is_dual_era else "sessions only"
        counts = "yes" if server.counts else "no"
        rows.append([f"`{name}`", said, reached, revisions, counts])
    head = ["", "package", "behind Rejoin by", "speaks", "shows how often a call ran"]
    return grid(head, rows)


def the_scenarios():
    """What each is."""
    return grid(["", "what happens"], [[one.name, one.words] for one in scenarios.ALL.values()])


def grid(head, rows):
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def difference(table):
    """What differs between a measured table and the committed one, or None."""
    old, new = committed().splitlines(), table.splitlines()
    if old == new:
        return None
    changed = [line for line in new if line not in old][:5]
    gone = [line for line in old if line not in new][:5]
    return (
        f"{PATH.name} is not what was measured; write it with --write. Only there: "
        f"{json.dumps(gone)}. Only measured: {json.dumps(changed)}"
    )
