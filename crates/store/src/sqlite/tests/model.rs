//! Random histories: the file, with restarts between, answers as the memory store does.

use std::collections::HashMap;

use rejoin_core::effect::DedupWrite;
use rejoin_core::id::CallId;
use rejoin_core::token::{Outcome, Owner};

use super::*;
use crate::memory::{MemoryLimits, MemoryStore};

const HISTORIES: u64 = 10;
const STEPS: u64 = 500;
/// Small enough to be used up now and then.
const QUOTA: Quota = Quota { principal_bytes_max: 20_000, total_bytes_max: 30_000 };

/// Numbers that look random and come again with the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// What the history knows of a session, right or not.
#[derive(Clone, Default)]
struct Known {
    fence: u64,
    version: u64,
    last_seq: u64,
    ends: HashMap<u32, u64>,
}

struct History {
    dice: Dice,
    memory: MemoryStore,
    file: Option<SqliteStore>,
    directory: TempDir,
    known: HashMap<u8, Known>,
}

/// Whatever was answered, as text, but for what stores need not agree on.
fn shown(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

impl History {
    fn new(seed: u64) -> Self {
        let limits = MemoryLimits { memory_log_bytes_max: MIB, quota: QUOTA };
        let memory = MemoryStore::new(limits).unwrap();
        let mut history = Self {
            dice: Dice(seed),
            memory,
            file: None,
            directory: folder(),
            known: HashMap::new(),
        };
        history.restart();
        history
    }

    fn restart(&mut self) {
        self.file = None;
        let tail_bytes_max = self.dice.roll(3) * 2_000;
        let options = options(Durability::Memory, QUOTA, tail_bytes_max);
        self.file = Some(SqliteStore::open(self.directory.path(), options).unwrap());
    }

    fn file(&self) -> &SqliteStore {
        self.file.as_ref().expect("it is open between the steps")
    }

    fn session(&mut self) -> u8 {
        self.dice.roll(4) as u8
    }

    async fn step(&mut self) {
        match self.dice.roll(60) {
            0..4 => self.create().await,
            4 => self.remove().await,
            5 | 6 => self.load().await,
            7 => self.expire().await,
            8 => self.restart(),
            9..30 => self.read().await,
            _ => self.commit().await,
        }
        self.compare_usage().await;
    }

    async fn create(&mut self) {
        let name = self.session();
        let principal = [name % 2; 32];
        let memory = self.memory.create([name; 32], principal).await;
        let file = self.file().create([name; 32], principal).await;
        assert_eq!(shown(&file), shown(&memory));
        if let Ok(opened) = file {
            let (fence, version) = (opened.fence.0, opened.version.0);
            self.known.insert(name, Known { fence, version, ..Known::default() });
        }
    }

    async fn remove(&mut self) {
        let name = self.session();
        let stale = self.dice.roll(4) == 0;
        let fence = self.known.get(&name).map_or(1, |known| known.fence) + u64::from(stale);
        let memory = self.memory.remove([name; 32], Fence(fence)).await;
        let file = self.file().remove([name; 32], Fence(fence)).await;
        assert_eq!(shown(file), shown(memory));
    }

    async fn load(&mut self) {
        let name = self.session();
        let memory = self.memory.load([name; 32]).await.unwrap();
        let file = self.file().load([name; 32]).await.unwrap();
        assert_eq!(shown(&file), shown(&memory));
        if let Some(loaded) = file {
            let known = self.known.get_mut(&name).unwrap();
            (known.fence, known.version) = (loaded.fence.0, loaded.version.0);
            known.last_seq = loaded.last_seq.0;
        }
    }

    async fn expire(&mut self) {
        let (now_ms, rows_max) = (self.dice.roll(3_000), self.dice.roll(5) as usize);
        let memory = self.memory.expire(now_ms, rows_max).await.unwrap();
        let file = self.file().expire(now_ms, rows_max).await.unwrap();
        assert_eq!((file.forgotten, file.more), (memory.forgotten, memory.more));
        assert_eq!(file.tombstones, memory.tombstones);
    }

    async fn read(&mut self) {
        let (name, stream) = (self.session(), StreamId(self.dice.roll(3) as u32));
        let last = self.known.get(&name).map_or(0, |known| known.last_seq);
        let (after, bytes_max) =
            (Seq(self.dice.roll(last + 2) * self.dice.roll(2)), self.dice.roll(3_000) as usize);
        let memory = self.memory.read([name; 32], stream, after, bytes_max).await;
        let file = self.file().read([name; 32], stream, after, bytes_max).await;
        assert_eq!(shown(&file), shown(&memory), "{stream} after {after}, {bytes_max} bytes");
        if let (Ok(file), Ok(memory)) = (file, memory) {
            assert!(file.events == memory.events);
        }
        let memory = self.memory.read_one([name; 32], stream, after).await;
        let file = self.file().read_one([name; 32], stream, after).await;
        assert_eq!(shown(file), shown(memory), "{stream} {after}");
        let memory = self.memory.read_part([name; 32], stream, after, 10, bytes_max).await;
        let file = self.file().read_part([name; 32], stream, after, 10, bytes_max).await;
        assert_eq!(shown(file), shown(memory), "{stream} {after}");
        let key = DedupKey([self.dice.roll(6) as u8; 32]);
        let memory = self.memory.token(key).await.unwrap();
        assert_eq!(self.file().token(key).await.unwrap(), memory);
        let memory = self.memory.watch([name; 32], stream).await;
        let file = self.file().watch([name; 32], stream).await;
        assert_eq!(file.map(|watch| watch.last()).ok(), memory.map(|watch| watch.last()).ok());
    }

    async fn commit(&mut self) {
        let name = self.session();
        let mut known = self.known.get(&name).cloned().unwrap_or_default();
        let batch = self.batch(name, &mut known);
        let (fence, version) = (Fence(known.fence), Version(known.version));
        let memory = self.memory.commit([name; 32], fence, version, batch.clone()).await;
        let file = self.file().commit([name; 32], fence, version, batch.clone()).await;
        assert_eq!(shown(&file), shown(&memory), "{batch:?}");
        if let Ok(version) = file {
            known.version = version.0;
            self.known.insert(name, known);
        }
    }

    fn batch(&mut self, name: u8, known: &mut Known) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..self.dice.roll(4) {
            batch.events.push(self.event(known));
        }
        for _ in 0..self.dice.roll(3).saturating_sub(1) {
            batch.dedup.push(self.write(name));
        }
        if self.dice.roll(6) == 0 {
            let stream = StreamId(self.dice.roll(3) as u32);
            let through = Seq(self.dice.roll(known.last_seq + 3));
            let responses_too = self.dice.roll(2) == 0;
            batch.evictions.push(Eviction { stream, through, responses_too });
        }
        if self.dice.roll(30) == 0 {
            let stream = StreamId(self.dice.roll(3) as u32);
            batch.forgotten_streams.push(stream);
            known.ends.remove(&stream.0);
        }
        if self.dice.roll(4) == 0 {
            batch.forgotten_calls.push(CallId(self.dice.roll(3)));
        }
        batch
    }

    /// An event that follows, or (rarely) one that does not.
    fn event(&mut self, known: &mut Known) -> Event {
        let stream = StreamId(self.dice.roll(3) as u32);
        known.last_seq += self.dice.roll(16).min(2);
        let previous = known.ends.insert(stream.0, known.last_seq).unwrap_or(0);
        let kind = match self.dice.roll(3) {
            0 => EventKind::Notification,
            1 => EventKind::ServerRequest,
            _ => EventKind::Response,
        };
        let payload = vec![known.last_seq as u8; self.dice.roll(1_500) as usize];
        Event {
            stream,
            kind,
            last: self.dice.roll(5) == 0,
            ..event(known.last_seq, previous, payload)
        }
    }

    fn write(&mut self, name: u8) -> DedupWrite {
        let owner = |dice: &mut Dice| Owner { session: [name; 32], call: CallId(dice.roll(2)) };
        let outcome = match self.dice.roll(6) {
            0 => Outcome::Freed,
            1 => Outcome::Cancelled,
            2 => Outcome::Unknown,
            3 => Outcome::Finished { response: vec![7; 900].into(), ended_ms: 3 },
            _ => Outcome::Running,
        };
        let record = DedupRecord {
            owner: owner(&mut self.dice),
            params: [name; 32],
            outcome,
            result_expires_ms: self.dice.roll(2_500),
            expires_ms: 1_000 + self.dice.roll(2_000),
        };
        let expected = (self.dice.roll(2) == 0).then(|| owner(&mut self.dice));
        DedupWrite { key: DedupKey([self.dice.roll(6) as u8; 32]), expected, record }
    }

    async fn compare_usage(&self) {
        let memory = self.memory.usage().await.unwrap();
        let file = self.file().usage().await.unwrap();
        assert_eq!(
            (file.bytes, file.sessions, file.tokens),
            (memory.bytes, memory.sessions, memory.tokens)
        );
        for principal in [[0; 32], [1; 32]] {
            let memory = self.memory.principal_usage(principal).await.unwrap();
            assert_eq!(self.file().principal_usage(principal).await.unwrap(), memory);
        }
    }
}

#[tokio::test]
async fn random_histories_are_answered_as_by_the_memory_store() {
    for seed in 0..HISTORIES {
        let mut history = History::new(seed);
        for step in 0..STEPS {
            println!("seed {seed}, step {step}");
            history.step().await;
        }
    }
}
