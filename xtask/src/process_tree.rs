//! Ends a command together with everything it started.

use std::collections::BTreeSet;
use std::process::{Child, Command};

/// Kills `child` and all its descendants, then reaps it.
///
/// The child shares our process group, so that Ctrl-C in a terminal reaches it; therefore the
/// descendants are found by their parents and ended one by one.
pub(crate) fn kill(child: &mut Child) {
    let mut pids = descendants(child.id());
    pids.insert(child.id());
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // A process that ended meanwhile makes `kill` fail, which is what is wanted.
    let _ = Command::new("sh").args(["-c", "kill -KILL \"$@\" 2>&-", "sh"]).args(&pids).status();
    let _ = child.kill();
    let _ = child.wait();
}

/// Every living descendant of process `root`, from `/proc`.
fn descendants(root: u32) -> BTreeSet<u32> {
    let parents: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .map(|entries| {
            entries
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
                .filter_map(|pid| Some((pid, parent(pid)?)))
                .collect()
        })
        .unwrap_or_default();
    let mut found = BTreeSet::new();
    let mut frontier = vec![root];
    while let Some(pid) = frontier.pop() {
        for (child, _) in parents.iter().filter(|(_, parent)| *parent == pid) {
            if found.insert(*child) {
                frontier.push(*child);
            }
        }
    }
    found
}

/// The parent of `pid`: field 4 of its `stat`, counted after the name, which may hold spaces.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn ends_grandchildren_too() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 600 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        assert!(descendants(child.id()).contains(&grandchild));

        kill(&mut child);

        let deadline = Instant::now() + Duration::from_secs(10);
        while is_running(grandchild) {
            assert!(Instant::now() < deadline, "the grandchild still runs");
            std::thread::yield_now();
        }
    }

    fn is_running(pid: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }
}
