//! What one search is bounded by: the client, the network, the server, the settings.

use rejoin_core::policy::Ablation;
use rejoin_core::settings::{Delivery, OnRepeat};

/// What the paths between client and gateway may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// One TCP connection from client to gateway, and a client that reads. A reset arrives before
    /// the next deadline, though other connections may be faster; a path does not die while an
    /// answer lies acknowledged but unread; the client reads or gives up within `reset_window`.
    Direct,
    /// As direct, but once what the gateway wrote is later than a deadline.
    Slow,
    /// Paths die at any moment, and whatever is on them with them; once, what travels is later than
    /// a deadline; a client reads as late as it likes, or lets its HTTP library keep what it took.
    Any,
    /// A proxy: it acknowledges for the client, and tells of nothing that happens to that one.
    Proxy,
}

/// What repeating a call of an intent means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It must not run twice.
    Effectful,
    /// It may run twice.
    Idempotent,
    /// It is never gated.
    Ungated,
}

/// Something that the application asks once.
#[derive(Clone, Copy, Debug)]
pub struct Intent {
    /// Which arguments: equal for twins.
    pub arguments: u8,
    /// Its dedup token, if the client uses them.
    pub token: Option<u8>,
    /// What repeating it means.
    pub effect: Effect,
    /// POSTs that the client may send for it.
    pub posts_max: u8,
    /// GETs that it may send for it.
    pub gets_max: u8,
    /// True if it may cancel it.
    pub cancels: bool,
    /// True if repeats are byte-identical; else each has a fresh JSON-RPC id.
    pub resends: bool,
    /// The client asks it only after the one before was answered.
    pub after_previous: bool,
    /// It acknowledges what it has read.
    pub acks: bool,
    /// The client says that a repeat is one, and which ledger knew the first attempt.
    pub counts_attempts: bool,
}

impl Intent {
    /// An effectful call that is posted once and never resumed.
    pub const fn once(arguments: u8) -> Self {
        Self {
            arguments,
            token: None,
            effect: Effect::Effectful,
            posts_max: 1,
            gets_max: 0,
            cancels: false,
            resends: false,
            after_previous: false,
            acks: false,
            counts_attempts: false,
        }
    }

    /// The same, posted up to so many times.
    pub const fn posts(self, posts_max: u8) -> Self {
        Self { posts_max, ..self }
    }

    /// The same, resumed up to so many times.
    pub const fn gets(self, gets_max: u8) -> Self {
        Self { gets_max, ..self }
    }

    /// The same, with a token.
    pub const fn token(self, token: u8) -> Self {
        Self { token: Some(token), ..self }
    }

    /// The same, with another effect.
    pub const fn effect(self, effect: Effect) -> Self {
        Self { effect, ..self }
    }

    /// The same, cancelled perhaps.
    pub const fn cancels(self) -> Self {
        Self { cancels: true, ..self }
    }

    /// The same, with byte-identical repeats.
    pub const fn resends(self) -> Self {
        Self { resends: true, ..self }
    }

    /// The same, asked after the intent before was answered.
    pub const fn after_previous(self) -> Self {
        Self { after_previous: true, ..self }
    }

    /// The same, acknowledged as it is read.
    pub const fn acks(self) -> Self {
        Self { acks: true, ..self }
    }

    /// The same, with counted attempts.
    pub const fn counts_attempts(self) -> Self {
        Self { counts_attempts: true, ..self }
    }
}

/// How often what may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The client closes an exchange before it has its answer.
    pub closes: u8,
    /// A path dies without a word.
    pub cuts: u8,
    /// The client, having read all, closes its side.
    pub fins: u8,
    /// A connection is reset though its answer was read.
    pub resets: u8,
    /// The gateway is killed and started again with its store.
    pub crashes: u8,
    /// The machine loses its power, and the gateway is started again with what was synced.
    pub power_cuts: u8,
    /// The gateway is started again without it.
    pub wipes: u8,
    /// The server dies.
    pub deaths: u8,
    /// Time passes to the next deadline.
    pub passes: u8,
    /// Events that a call produces before its answer.
    pub progress: u8,
    /// True if time goes on beyond a minute without anything, to the end of the repeat window.
    pub windows: bool,
    /// True if the session looks at what waits only some time after it could: what comes is first.
    pub slow_review: bool,
    /// True if the client closes only where it has read an event before.
    pub after_reading: bool,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// What it looks at.
    pub about: &'static str,
    /// What the client wants.
    pub intents: Vec<Intent>,
    /// What the network does.
    pub network: Network,
    /// The setting.
    pub delivery: Delivery,
    /// The setting.
    pub on_repeat: OnRepeat,
    /// What is missing of the rule.
    pub ablation: Ablation,
    /// What may go wrong.
    pub faults: Faults,
    /// True if a refusal counts as a violation: for rows that only spare refusals.
    pub refusals_count: bool,
    /// False: equal calls are never taken for twins (`twin_window_ms = 0`).
    pub twins: bool,
}

impl Network {
    /// A client and its kernel behave as on a direct path.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Direct | Self::Slow)
    }
}

impl Config {
    /// A search of the whole rule with the default settings.
    pub fn new(
        name: &'static str,
        about: &'static str,
        intents: &[Intent],
        faults: Faults,
    ) -> Self {
        Self {
            name,
            about,
            intents: intents.to_vec(),
            network: Network::Direct,
            delivery: Delivery::Presumed,
            on_repeat: OnRepeat::Collect,
            ablation: Ablation::Nothing,
            faults,
            refusals_count: false,
            twins: true,
        }
    }

    /// The same without twins.
    pub fn no_twins(mut self) -> Self {
        self.twins = false;
        self
    }

    /// The same, in which nobody may be refused.
    pub fn none_refused(mut self) -> Self {
        self.refusals_count = true;
        self
    }

    /// The same behind another network.
    pub fn over(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// The same under another notion of delivery.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// The same with another answer to repeats.
    pub fn on_repeat(mut self, on_repeat: OnRepeat) -> Self {
        self.on_repeat = on_repeat;
        self
    }

    /// The same with a part of the rule missing.
    pub fn without(mut self, ablation: Ablation) -> Self {
        self.ablation = ablation;
        self
    }
}
