//! What a seed stands for: a configuration, the clients, and what goes wrong.

use std::collections::BTreeMap;

use rejoin_core::policy::Ablation;
use rejoin_core::settings::{Delivery, OnRepeat, RepeatScope, Settings};

use crate::disk;
use crate::history::{Key, Leave};
use crate::net::{Pace, Proxy};
use crate::random::Random;
use crate::tool::Work;

/// The arguments of calls that come beside a resumed stream begin here.
const CHASE_KEY: Key = 500;
/// Clients of one principal have keys so far apart. Those of different ones have the same.
const KEYS_EACH: Key = 100;

/// One of so many seeds has a call whose messages are larger than a page of the log.
const LARGE_EACH: u64 = 5;
const LARGE_BYTES: usize = 150_000;
const LARGE_PAUSE_MS: u64 = 20;

/// Everything that is decided beforehand.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub delivery: Delivery,
    pub on_repeat: OnRepeat,
    pub scope: RepeatScope,
    /// Two equal calls on living connections are two calls.
    pub twins: bool,
    pub proxy: Option<Proxy>,
    pub server: Server,
    pub pace: Pace,
    pub clients: Vec<ClientPlan>,
    /// In order of time.
    pub faults: Vec<(u64, Fault)>,
    /// From here on nothing goes wrong any more.
    pub calm_ms: u64,
    pub without: Ablation,
}

/// What stands behind the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A process of its own for each session, which ends with the gateway.
    Child,
    /// One at a URL, which does not.
    Web,
}

/// How a client goes on after it lost a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It sends the call again, under the same id or another.
    Repeats { same_id: bool },
    /// It resumes the stream if it has a cursor.
    Resumes,
    /// It resumes, confirms what it read, and counts its attempts.
    Aware,
}

impl Kind {
    pub fn resumes(self) -> bool {
        !matches!(self, Self::Repeats { .. })
    }
}

#[derive(Clone, Debug)]
pub struct ClientPlan {
    /// `None`: it presents no credential.
    pub principal: Option<u32>,
    pub kind: Kind,
    /// It sends its next request on a connection whose answer it read.
    pub pools: bool,
    /// Two calls in one POST, and when.
    pub batches: Vec<(u64, [Work; 2])>,
    /// When it tries to get in with what is another's.
    pub intrudes_ms: Option<u64>,
    /// When it pings.
    pub pings: Vec<u64>,
    /// How it listens to what its server says of its own.
    pub listens: Option<ListenPlan>,
    /// It ends its session when it is done; with a call that runs, or not.
    pub deletes: Option<Deletes>,
    pub askings: Vec<AskPlan>,
}

/// A client that reads its session's standalone stream.
#[derive(Clone, Debug)]
pub struct ListenPlan {
    pub at_ms: u64,
    /// It leaves its connections after so long, one after the other, and resumes.
    pub leaves: Vec<u64>,
    /// After so long.
    pub retry_ms: u64,
}

/// How a client ends its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletes {
    /// When nothing of it runs.
    Idle,
    /// While a call runs.
    Running,
}

/// Something that a client wants once.
#[derive(Clone, Debug)]
pub struct AskPlan {
    pub at_ms: u64,
    pub work: Work,
    /// Its token's number. Other principals have the same.
    pub token: Option<Key>,
    /// Each attempt but the last ones is left after so long.
    pub leaves: Vec<(u64, Leave)>,
    pub cancel_ms: Option<u64>,
    /// The client waits so long before each read.
    pub pause_ms: u64,
    /// Between two attempts.
    pub retry_ms: u64,
    /// When the client first resumes, so long after it something else is asked for.
    pub chase: Option<(u64, Key)>,
}

impl AskPlan {
    /// A small call, at once, that its client waits for.
    pub fn plain(key: Key) -> Self {
        Self {
            at_ms: 0,
            work: Work { key, ms: 10, steps: 1, bytes: 0, charge: true, asks: false },
            token: None,
            leaves: Vec::new(),
            cancel_ms: None,
            pause_ms: 0,
            retry_ms: 1_000,
            chase: None,
        }
    }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Cut {
        all: bool,
        by_reset: bool,
    },
    Block {
        all: bool,
        to_client: bool,
        to_gateway: bool,
        ms: u64,
    },
    Dark {
        ms: u64,
    },
    /// It is ended in order, and started again.
    Restart {
        down_ms: u64,
    },
    Crash {
        with_host: bool,
        down_ms: u64,
        clock_jump_ms: i64,
    },
    /// It is killed, and its disk is lost.
    LedgerLost {
        down_ms: u64,
    },
    /// What runs ends, and sessions are forgotten.
    ServerDies,
    /// Its connections break.
    ServerCut,
    /// It cannot be reached for a while.
    ServerAway {
        ms: u64,
    },
    Disk {
        pace: disk::Pace,
        ms: u64,
    },
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64, without: Ablation) -> Self {
        let mut random = Random::new(seed, 1);
        let delivery = random.one_of(&[Delivery::Presumed, Delivery::Presumed, Delivery::Proved]);
        let on_repeat = random.one_of(&[
            OnRepeat::Collect,
            OnRepeat::Collect,
            OnRepeat::Join,
            OnRepeat::Reject,
        ]);
        let scope =
            random.one_of(&[RepeatScope::Session, RepeatScope::Session, RepeatScope::Principal]);
        let proxy = match random.between(0, 9) {
            0 => Some(Proxy::Tells),
            1 => Some(Proxy::Swallows),
            _ => None,
        };
        let server = random.one_of(&[Server::Child, Server::Web]);
        let twins = !random.percent(if proxy.is_some() { 60 } else { 10 });
        let low = random.between(1, 20);
        let pace = Pace {
            latency_ms: (low, low + random.one_of(&[0, 5, 60])),
            ack_delay_ms: random.one_of(&[0, 0, 40]),
        };
        let mut clients: Vec<ClientPlan> = Vec::new();
        let mut works = BTreeMap::new();
        for _ in 0..random.between(1, 3) {
            let principal = principal(&mut random);
            let is_same = |known: &&ClientPlan| principal.is_some() && known.principal == principal;
            let keys = KEYS_EACH * clients.iter().filter(is_same).count() as Key;
            clients.push(client(&mut random, principal, keys, &mut works));
        }
        if seed.is_multiple_of(LARGE_EACH) {
            enlarge(&mut clients);
        }
        let faults = faults(&mut random);
        let calm_ms = 60_000;
        Self {
            seed,
            delivery,
            on_repeat,
            scope,
            twins,
            proxy,
            server,
            pace,
            clients,
            faults,
            calm_ms,
            without,
        }
    }

    /// The gateway's settings.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings {
            delivery: self.delivery,
            on_repeat: self.on_repeat,
            repeat_scope: self.scope,
            ablation: self.without,
            ..Settings::default()
        };
        settings.idempotent_tools.insert("look".to_owned());
        if !self.twins {
            settings.limits.twin_window_ms = 0;
        }
        settings
    }
}

/// The first thing that is wanted is large, for whoever wants it.
fn enlarge(clients: &mut [ClientPlan]) {
    let mut askings: Vec<_> = clients.iter_mut().flat_map(|plan| &mut plan.askings).collect();
    let first = askings.first().map(|asking| asking.work.key);
    for asking in askings.iter_mut().filter(|asking| Some(asking.work.key) == first) {
        asking.work.bytes = LARGE_BYTES;
        asking.work.steps = asking.work.steps.min(2);
        // Who reads more slowly gives up before one of them is whole.
        asking.pause_ms = asking.pause_ms.min(LARGE_PAUSE_MS);
    }
}

fn principal(random: &mut Random) -> Option<u32> {
    match random.between(0, 3) {
        0 => None,
        1 => Some(1),
        _ => Some(random.between(2, 3) as u32),
    }
}

/// A client whose keys come after `keys`; `works`: what others want by theirs.
fn client(
    random: &mut Random,
    principal: Option<u32>,
    mut keys: Key,
    works: &mut BTreeMap<Key, Work>,
) -> ClientPlan {
    let kind = match random.between(0, 5) {
        0 => Kind::Repeats { same_id: true },
        1 | 2 => Kind::Repeats { same_id: false },
        3 | 4 => Kind::Resumes,
        _ => Kind::Aware,
    };
    let mut askings = Vec::new();
    for _ in 0..random.between(1, 4) {
        keys += 1;
        let mut asking = asking(random, kind, keys);
        let known = *works.entry(keys).or_insert(asking.work);
        if random.percent(70) {
            asking.work = known;
        }
        // The same once more, on purpose.
        if random.percent(12) && asking.token.is_none() {
            let later_ms = random.one_of(&[50, 2_000, 20_000]);
            askings.push(AskPlan { at_ms: asking.at_ms + later_ms, ..asking.clone() });
        }
        // Something else, under a token that was taken.
        if random.percent(8) && asking.token.is_some() {
            keys += 1;
            let work = Work { key: keys, ..asking.work };
            let (at_ms, leaves) = (asking.at_ms + random.between(50, 9_000), Vec::new());
            askings.push(AskPlan { at_ms, work, leaves, cancel_ms: None, ..asking.clone() });
        }
        askings.push(asking);
    }
    let intrudes_ms = random.percent(25).then(|| random.between(2_000, 40_000));
    let mut batches = Vec::new();
    if random.percent(20) {
        let works = [1, 2].map(|_| {
            keys += 1;
            Work { asks: false, ..asking(random, kind, keys).work }
        });
        batches.push((random.between(0, 25_000), works));
    }
    let pools = random.percent(60);
    let pings = (0..random.one_of(&[0, 1, 6])).map(|_| random.between(0, 40_000)).collect();
    let listens = random.percent(35).then(|| ListenPlan {
        at_ms: random.between(0, 20_000),
        leaves: (0..random.between(0, 3)).map(|_| random.between(100, 12_000)).collect(),
        retry_ms: random.one_of(&[20, 1_000, 6_000]),
    });
    let deletes = random.one_of(&[None, None, None, Some(Deletes::Idle), Some(Deletes::Running)]);
    ClientPlan { principal, kind, pools, batches, intrudes_ms, pings, listens, deletes, askings }
}

fn asking(random: &mut Random, kind: Kind, key: Key) -> AskPlan {
    let work = Work {
        key,
        ms: random.one_of(&[0, 30, 300, 2_000, 6_000, 15_000]),
        steps: random.one_of(&[0, 0, 1, 3, 10]),
        bytes: random.one_of(&[0, 0, 100, 3_000, 12_000]),
        charge: random.percent(85),
        asks: random.percent(12),
    };
    let mut leaves = Vec::new();
    while random.percent(35) && leaves.len() < 3 {
        // About when the answer comes, or at any time.
        let about = work.ms + random.between(0, 120);
        let after_ms = if random.percent(50) { about } else { random.between(1, 20_000) };
        let how =
            random.one_of(&[Leave::Close, Leave::Close, Leave::Reset, Leave::Vanish, Leave::Stay]);
        leaves.push((after_ms, how));
    }
    let has_token = random.percent(if kind == Kind::Aware { 80 } else { 15 });
    AskPlan {
        at_ms: random.between(0, 25_000),
        work,
        token: has_token.then_some(key),
        leaves,
        cancel_ms: random.percent(8).then(|| random.between(0, 10_000)),
        pause_ms: random.one_of(&[0, 0, 0, 20, 20, 700]),
        retry_ms: random.one_of(&[20, 200, 1_000, 3_000]),
        chase: random.percent(80).then(|| (random.between(20, 250), CHASE_KEY + key)),
    }
}

fn faults(random: &mut Random) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..random.one_of(&[0, 1, 2, 4, 7]) {
        faults.push((random.between(0, 40_000), fault(random)));
    }
    faults.sort_by_key(|(at_ms, _)| *at_ms);
    faults
}

fn fault(random: &mut Random) -> Fault {
    match random.between(0, 9) {
        0..=2 => Fault::Cut { all: random.percent(40), by_reset: random.percent(60) },
        3 | 4 => {
            let (to_client, to_gateway) =
                random.one_of(&[(true, true), (true, false), (false, true)]);
            let ms = random.one_of(&[200, 3_000, 8_000, 18_000]);
            Fault::Block { all: random.percent(40), to_client, to_gateway, ms }
        }
        5 => Fault::Dark { ms: random.between(100, 10_000) },
        6 if random.percent(40) => Fault::Restart { down_ms: random.one_of(&[1, 3_000]) },
        7 if random.percent(25) => Fault::LedgerLost { down_ms: random.one_of(&[1, 3_000]) },
        6 | 7 => Fault::Crash {
            with_host: random.percent(25),
            down_ms: random.one_of(&[1, 200, 3_000, 12_000]),
            clock_jump_ms: random.one_of(&[0, 0, 3_600_000, -60_000, -3_600_000]),
        },
        8 => match random.between(0, 3) {
            0 | 1 => Fault::ServerDies,
            2 => Fault::ServerCut,
            _ => Fault::ServerAway { ms: random.one_of(&[100, 2_000, 9_000]) },
        },
        _ => {
            let failing_percent = random.one_of(&[0, 0, 20]);
            let pace = disk::Pace { commit_ms: (1, random.one_of(&[20, 400])), failing_percent };
            Fault::Disk { pace, ms: random.between(500, 15_000) }
        }
    }
}
