//! Operations that share a transaction, and faults in the middle of one.

use std::sync::mpsc;

use super::operation::{Operation, Transaction};
use super::*;

/// Keeps the writer until it is let go.
struct Hold(mpsc::Receiver<()>);

impl Operation for Hold {
    type Output = ();

    fn run(self, _: &mut Transaction<'_>) -> rusqlite::Result<()> {
        let _gone = self.0.recv();
        Ok(())
    }
}

/// Runs statements of the test.
struct Run(String);

impl Operation for Run {
    type Output = ();

    fn run(self, transaction: &mut Transaction<'_>) -> rusqlite::Result<()> {
        transaction.connection.execute_batch(&self.0)
    }
}

async fn run(store: &SqliteStore, statements: impl Into<String>) {
    store.writer.run(Run(statements.into()), 0).await.unwrap();
}

/// Appends to each log while the writer is held, together with `between`.
async fn together(
    store: &Arc<SqliteStore>,
    logs: Vec<Log>,
    between: Run,
) -> (Vec<Log>, Result<(), Failure>) {
    let (release, held) = mpsc::channel();
    let holder = tokio::spawn({
        let store = Arc::clone(store);
        async move { store.writer.run(Hold(held), 0).await.map_err(Failure::from) }
    });
    let half = logs.len() / 2;
    let mut between = Some(between);
    let (mut tasks, mut extra) = (Vec::new(), None);
    for (number, mut log) in logs.into_iter().enumerate() {
        if number == half
            && let Some(between) = between.take()
        {
            let store = Arc::clone(store);
            extra = Some(tokio::spawn(async move {
                store.writer.run(between, 0).await.map_err(Failure::from)
            }));
        }
        tasks.push(tokio::spawn(async move {
            log.append("together").await.unwrap();
            log
        }));
    }
    // On one thread, all tasks run until they wait for the writer.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    release.send(()).unwrap();
    holder.await.unwrap().unwrap();
    let mut logs = Vec::new();
    for task in tasks {
        logs.push(task.await.unwrap());
    }
    (logs, extra.expect("there are logs").await.unwrap())
}

async fn many(store: &Arc<SqliteStore>) -> Vec<Log> {
    let mut logs = Vec::new();
    for number in 0..50 {
        logs.push(Log::create(store, &format!("s{number}")).await);
    }
    logs
}

#[tokio::test]
async fn what_waits_is_committed_in_one_transaction() {
    let directory = folder();
    let store = open(directory.path());
    let logs = many(&store).await;
    let before = *store.shared.published.borrow();
    let (logs, extra) = together(&store, logs, Run(String::new())).await;
    extra.unwrap();
    let transactions = *store.shared.published.borrow() - before;
    assert!(transactions <= 2, "{transactions} transactions for 50 commits");
    for log in logs {
        assert_eq!(log.read(0).await.events.len(), 1);
    }
}

#[tokio::test]
async fn sessions_are_taken_over_together_in_one_transaction() {
    let directory = folder();
    let store = open(directory.path());
    let logs = many(&store).await;
    let before = *store.shared.published.borrow();
    let loaded = store.load_all(logs.iter().map(|log| log.session).collect()).await.unwrap();
    assert_eq!(*store.shared.published.borrow() - before, 1);
    assert!(loaded.iter().all(|loaded| loaded.as_ref().unwrap().is_some()));
}

#[tokio::test]
async fn an_operation_that_fails_leaves_no_trace_and_takes_no_other_with_it() {
    let directory = folder();
    let store = open(directory.path());
    let logs = many(&store).await;
    let broken = "insert into meta (key, value) values ('trace', 1); insert into meta (key, value)
        values ('trace', 1)";
    let (logs, extra) = together(&store, logs, Run(broken.to_owned())).await;
    extra.expect_err("the second row is refused");
    assert_eq!(logs.len(), 50);
    drop(logs);
    drop(store);
    let connection = rusqlite::Connection::open(directory.path().join("rejoin.db")).unwrap();
    let count = |query| connection.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("select count(*) from meta where key = 'trace'"), 0);
    assert_eq!(count("select count(*) from events"), 50);
}

#[tokio::test]
async fn a_full_database_refuses_what_does_not_fit_until_there_is_room() {
    let directory = folder();
    let store = open(directory.path());
    let mut log = Log::create(&store, "s").await;
    log.append("before").await.unwrap();
    let before = store.usage().await.unwrap();
    run(&store, "pragma max_page_count = 30").await;
    for _ in 0..3 {
        let refused = log.append(vec![b'x'; 200_000]).await.unwrap_err();
        let CommitError::Io(failure) = &refused else { panic!("{refused:?}") };
        assert_eq!(failure.source_kind(), std::io::ErrorKind::StorageFull);
        let text = refused.to_string();
        assert!(text.contains("make room"), "{text}");
        assert_eq!(store.usage().await.unwrap(), before);
        assert_eq!(log.read(0).await.events.len(), 1);
    }
    log.append("small").await.expect("what fits is still appended");
    run(&store, "pragma max_page_count = 1000000").await;
    log.append(vec![b'x'; 200_000]).await.expect("there is room again");
    assert_eq!(log.read(0).await.events.len(), 3);
}

/// Holds the tails, so that nothing that is committed is shown, until the sender is dropped.
fn hold_tails(store: &Arc<SqliteStore>) -> (mpsc::Sender<()>, std::thread::JoinHandle<()>) {
    let (release, held) = mpsc::channel::<()>();
    let (told, holds) = mpsc::channel();
    let store = Arc::clone(store);
    let holder = std::thread::spawn(move || {
        let _tails = lock(&store.shared.tails);
        told.send(()).unwrap();
        let _released = held.recv();
    });
    holds.recv().unwrap();
    (release, holder)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_committed_is_not_told_before_its_events_are_there_to_be_read() {
    let directory = folder();
    let store = open(directory.path());
    let mut log = Log::create(&store, "s").await;
    // Its tail is known, so it is read there.
    log.append("first").await.unwrap();
    let key = DedupKey([7; 32]);
    let owner =
        rejoin_core::token::Owner { session: log.session, call: rejoin_core::id::CallId(1) };
    let record = DedupRecord {
        owner,
        params: [1; 32],
        outcome: rejoin_core::token::Outcome::Running,
        result_expires_ms: 1,
        expires_ms: 2,
    };
    let batch = Batch {
        events: vec![event(2, 1, "second")],
        dedup: vec![rejoin_core::effect::DedupWrite { key, expected: None, record }],
        ..Batch::default()
    };
    let (release, holder) = hold_tails(&store);
    let session = log.session;
    let commit = tokio::spawn(async move { log.commit(batch).await });
    let connection = rusqlite::Connection::open(directory.path().join("rejoin.db")).unwrap();
    let committed = || {
        let query = "select count(*) from tokens";
        connection.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap() == 1
    };
    while !committed() {
        tokio::task::yield_now().await;
    }
    let looked = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.token(key).await.unwrap() }
    });
    for _ in 0..50 {
        assert!(!looked.is_finished(), "the token is seen, and its event is not");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    drop(release);
    holder.join().unwrap();
    commit.await.unwrap().unwrap();
    assert!(looked.await.unwrap().is_some());
    let page = store.read(session, STREAM, Seq(1), 100).await.unwrap();
    assert_eq!(page.events, [event(2, 1, "second")]);
}
