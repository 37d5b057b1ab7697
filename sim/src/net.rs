//! A network with kernels: what a program has written, what the peer's kernel has, and what the
//! peer's program has read are three places (design section 3).
//!
//! A connection has two ends, each with a buffer of what it wrote and the peer has not
//! acknowledged, and one of what arrived and was not read, both bounded. In each direction a
//! carrier takes a segment at a time to the other end, and its acknowledgement back. Paths can be
//! blocked, in one direction too: then segments, ends, resets and acknowledgements wait until it is
//! open again.

mod carrier;
mod end;
mod kernel;
mod proxy;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rejoin_gateway::listen::Listener;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::history::{History, Leave, What};
use crate::random::Random;

pub use self::carrier::marks;
pub use self::end::End;
use self::kernel::{CLIENT, GATEWAY, Link};
pub use self::proxy::Proxy;

/// How long things take between two ends, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub latency_ms: (u64, u64),
    /// A kernel may wait so long with an acknowledgement.
    pub ack_delay_ms: u64,
}

/// The network of one run. Clones are the same.
#[derive(Clone)]
pub struct Net {
    shared: Arc<Shared>,
}

struct Shared {
    history: History,
    pace: Pace,
    proxy: Option<Proxy>,
    state: Mutex<State>,
    arrived: Notify,
}

struct State {
    random: Random,
    next: u32,
    /// True while a gateway listens, at the newest door.
    is_open: bool,
    door: u32,
    /// Connections that nobody has accepted yet.
    waiting: VecDeque<End>,
    /// All connections of the gateway's side that may still carry something.
    links: Vec<Arc<Link>>,
    /// Until when nothing new gets through.
    dark: bool,
}

impl Net {
    pub fn new(history: History, pace: Pace, proxy: Option<Proxy>, random: Random) -> Self {
        let state = State {
            random,
            next: 1,
            is_open: false,
            door: 0,
            waiting: VecDeque::new(),
            links: Vec::new(),
            dark: false,
        };
        let (state, arrived) = (Mutex::new(state), Notify::new());
        Self { shared: Arc::new(Shared { history, pace, proxy, state, arrived }) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects a client to the gateway, or to the proxy in front of it.
    ///
    /// # Errors
    /// `ConnectionRefused` if no gateway listens.
    pub async fn connect(&self, client: usize) -> io::Result<End> {
        let Some(proxy) = self.shared.proxy else { return self.reach(client).await };
        let (near, far) = self.link(client, false);
        let upstream = match self.reach(client).await {
            Ok(upstream) => upstream,
            Err(error) => {
                far.leave(Leave::Close);
                return Err(error);
            }
        };
        tokio::spawn(proxy::relay(proxy, far, upstream));
        Ok(near)
    }

    async fn reach(&self, client: usize) -> io::Result<End> {
        let round_trip = {
            let mut state = self.state();
            let (low, high) = self.shared.pace.latency_ms;
            2 * state.random.between(low, high)
        };
        sleep(Duration::from_millis(round_trip)).await;
        let is_open = {
            let state = self.state();
            state.is_open && !state.dark
        };
        if !is_open {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = self.link(client, true);
        self.state().waiting.push_back(far);
        self.shared.arrived.notify_one();
        Ok(near)
    }

    /// A new connection: the client's end, and the other one.
    fn link(&self, client: usize, is_gateways: bool) -> (End, End) {
        let (conn, random) = {
            let mut state = self.state();
            state.next += 1;
            (state.next - 1, state.random.fork())
        };
        let link = Link::new(conn, self.shared.history.clone(), self.shared.pace, random);
        if is_gateways {
            let mut state = self.state();
            state.links.retain(|link| !link.is_over());
            state.links.push(Arc::clone(&link));
        }
        self.shared.history.record(What::Connected { conn, client });
        for from in [CLIENT, GATEWAY] {
            tokio::spawn(carrier::carry(Arc::clone(&link), from));
        }
        (End::new(Arc::clone(&link), CLIENT), End::new(link, GATEWAY))
    }

    /// A gateway listens from now on.
    pub fn open(&self) -> Door {
        let mut state = self.state();
        state.is_open = true;
        state.door += 1;
        Door { net: self.clone(), number: state.door }
    }

    /// The gateway's process was killed: its kernel closes what it had open. If its whole host went
    /// down, nobody says anything.
    pub fn kill(&self, with_host: bool) {
        let (links, waiting) = {
            let mut state = self.state();
            state.is_open = false;
            (std::mem::take(&mut state.links), std::mem::take(&mut state.waiting))
        };
        for link in links {
            link.kill_gateway(with_host);
        }
        drop(waiting);
    }

    /// Blocks the paths of one living connection, or of all (`which`: by chance), for a while.
    pub fn block(&self, all: bool, to_client: bool, to_gateway: bool, time: Duration) {
        let links = self.chosen(all);
        for link in &links {
            link.block(GATEWAY, to_client);
            link.block(CLIENT, to_gateway);
        }
        tokio::spawn(async move {
            sleep(time).await;
            for link in links {
                link.block(GATEWAY, false);
                link.block(CLIENT, false);
            }
        });
    }

    /// Nothing new connects while it is dark.
    pub fn darken(&self, dark: bool) {
        if std::mem::replace(&mut self.state().dark, dark) != dark {
            self.shared.history.record(What::Dark { dark });
        }
    }

    /// Something in the middle cuts one living connection, or all: a reset, or an end, both ways.
    pub fn cut(&self, all: bool, by_reset: bool) {
        for link in self.chosen(all) {
            link.cut(by_reset);
        }
    }

    fn chosen(&self, all: bool) -> Vec<Arc<Link>> {
        let mut state = self.state();
        state.links.retain(|link| !link.is_over());
        if all || state.links.is_empty() {
            return state.links.clone();
        }
        let newest = state.links.len() as u64 - 1;
        let chosen = state.random.between(0, newest) as usize;
        vec![Arc::clone(&state.links[chosen])]
    }
}

/// Where a gateway accepts.
pub struct Door {
    net: Net,
    number: u32,
}

/// A listener that is closed refuses, and resets what nobody has accepted.
impl Drop for Door {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.net.state();
            // After a kill the next life may listen already.
            if state.door != self.number {
                return;
            }
            state.is_open = false;
            std::mem::take(&mut state.waiting)
        };
        for end in waiting {
            end.leave(Leave::Reset);
        }
    }
}

impl Listener for Door {
    type Transport = End;

    async fn accept(&self) -> io::Result<End> {
        loop {
            let arrived = self.net.shared.arrived.notified();
            if let Some(end) = self.net.state().waiting.pop_front() {
                return Ok(end);
            }
            arrived.await;
        }
    }
}
