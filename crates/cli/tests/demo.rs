//! `rejoin demo`, the real binary: its stories come out as told.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rejoin")).arg("demo").args(arguments).output().unwrap()
}

#[test]
fn the_bare_half_shows_both_failures_in_eighty_columns_without_colour() {
    // Which of two sockets is served first is a race: on a busy machine the plain server may come
    // out in order. Then the demo says so and fails, as it must.
    let mut output = demo(&["--fast", "--bare-only"]);
    for _ in 0..2 {
        if !output.status.success() {
            output = demo(&["--fast", "--bare-only"]);
        }
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}\n{text}");
    assert!(text.contains("=> charged twice, and no error anywhere"), "{text}");
    assert!(text.contains("200, answer: charged 5 (execution 2)"), "{text}");
    assert!(text.contains("=> the new answer overtook the old events"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'), "colour without a terminal");
}
