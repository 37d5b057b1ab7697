//! What is kept of the corpus, and of all that was ever found: none of it is a finding.

use std::fs;
use std::panic;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Panics so far, those of tasks and other threads too, which nobody else would hear of.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            hook(info);
        }));
    });
}

fn replay(target: &str, run: fn(&[u8])) {
    count_panics();
    let mut inputs = 0;
    for kept in ["corpus", "findings"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(kept).join(target);
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("it is listed").path()).collect();
        paths.sort();
        for path in paths {
            let input = fs::read(&path).expect("it can be read");
            let panics = PANICS.load(Ordering::Relaxed);
            let is_done = panic::catch_unwind(|| run(&input)).is_ok();
            let now = PANICS.load(Ordering::Relaxed);
            assert!(is_done && now == panics, "a finding: {}", path.display());
            inputs += 1;
        }
    }
    assert!(inputs > 0, "nothing is kept of {target}");
}

#[test]
fn nothing_that_is_kept_is_a_finding() {
    // One after the other, so that a panic is told with its own input.
    replay("envelope", rejoin_fuzz::envelope::run);
    replay("event_id", rejoin_fuzz::event_id::run);
    replay("headers", rejoin_fuzz::headers::run);
    replay("http", rejoin_fuzz::http::run);
    replay("options", rejoin_fuzz::options::run);
    replay("printed", rejoin_fuzz::printed::run);
    replay("rows", rejoin_fuzz::rows::run);
    replay("session", rejoin_fuzz::session::run);
    replay("sqlite", rejoin_fuzz::sqlite::run);
    replay("sse", rejoin_fuzz::sse::run);
}
