//! The model that is searched: one configuration, as stateright wants it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rejoin_core::id::{CallId, Epoch, digest};
use rejoin_core::message::{self, Incoming, Message};
use rejoin_core::revision::Revision;
use rejoin_core::session::{Session, SessionStart};
use rejoin_core::settings::Settings;

use crate::action::{self, Action};
use crate::config::{Config, Effect};
use crate::property::{ALL, Property};
use crate::store::Store;
use crate::world::{Progress, Spent, World};

/// When the first session starts: far from 0, so that no age is cut off.
const START_MS: u64 = 1_000_000_000;
/// The tool that may run twice.
const IDEMPOTENT_TOOL: &str = "look";

/// One configuration, ready to be searched.
pub struct Model {
    /// What it is.
    pub config: Config,
    /// The settings of its session.
    pub settings: Arc<Settings>,
    /// What its client sends, by intent and POST.
    messages: Vec<Vec<Message>>,
    /// What it was looked at for.
    pub counts: Counts,
    found: AtomicU64,
}

/// What a search counts, over all states.
#[derive(Default)]
pub struct Counts {
    /// States in which an intent was refused.
    pub refused: AtomicU64,
    /// Those in which it had been posted once only, and nothing had gone wrong with it.
    pub refused_behaving: AtomicU64,
    /// Most verdicts of plain rule and decision compared on the way to a state, summed up.
    pub compared: AtomicU64,
    /// States from which nothing more happens.
    pub ends: AtomicU64,
    /// Longest virtual time.
    pub longest_ms: AtomicU64,
}

impl Model {
    /// Prepares a configuration.
    pub fn new(config: Config) -> Self {
        let mut settings = Settings {
            on_repeat: config.on_repeat,
            delivery: config.delivery,
            ablation: config.ablation,
            ..Settings::default()
        };
        if !config.twins {
            settings.limits.twin_window_ms = 0;
        }
        settings.idempotent_tools.insert(IDEMPOTENT_TOOL.to_owned());
        let messages = (0..config.intents.len()).map(|intent| messages(&config, intent)).collect();
        Self {
            config,
            settings: Arc::new(settings),
            messages,
            counts: Counts::default(),
            found: AtomicU64::new(0),
        }
    }

    /// What the client sends for an intent the how manyth time.
    pub fn message(&self, intent: usize, post: u8) -> &Message {
        let all = &self.messages[intent];
        &all[usize::from(post).min(all.len() - 1)]
    }

    /// What an intent is called: twins share a letter.
    pub fn name(&self, intent: usize) -> String {
        let letter = |arguments: u8| char::from(b'A' + arguments);
        let arguments = self.config.intents[intent].arguments;
        let same = |i: &usize| self.config.intents[*i].arguments == arguments;
        let twin = (0..intent).filter(same).count();
        format!("{}{}", letter(arguments), "'".repeat(twin))
    }

    /// A session that has just been started.
    pub fn session(&self, epoch: u32, now_ms: u64) -> Session {
        let start = SessionStart {
            session: digest(b"session"),
            ledger_epoch: epoch.into(),
            call_base: CallId(0),
            epoch: Epoch(epoch),
            asked: Revision::new("2025-11-25"),
            agreed: Revision::new("2025-11-25"),
            origin: Bytes::new(),
            continuation: None,
            settings: Arc::clone(&self.settings),
        };
        Session::new(start, now_ms)
    }

    fn first(&self) -> World {
        let session = self.session(1, START_MS);
        let faults = &self.config.faults;
        let (crashes, power_cuts) = (faults.crashes > 0, faults.power_cuts > 0);
        let store = (crashes || power_cuts).then(|| Store::new(session.start(), power_cuts));
        World {
            now_ms: START_MS,
            session,
            store,
            log: Vec::new(),
            tokens: Default::default(),
            exchanges: Vec::new(),
            intents: vec![Progress::default(); self.config.intents.len()],
            runs: Vec::new(),
            loss_untold: false,
            marks: Vec::new(),
            spent: Spent::default(),
            broken: 0,
            ledger_epoch: 1,
            compared: 0,
            told: None,
        }
    }

    /// The first state in which a property is violated is the one to show: the checker would
    /// replace it by later ones.
    fn holds(&self, property: Property, world: &World) -> bool {
        let broken = world.broken & property.bit() != 0;
        let first = u64::from(property.bit());
        !broken || self.found.fetch_or(first, Ordering::Relaxed) & first != 0
    }

    fn count(&self, world: &World) {
        let refused = world.intents.iter().any(|intent| intent.refused.is_some());
        let behaving = |intent: &Progress| {
            intent.refused.is_some() && intent.posts == 1 && intent.gets == 0 && !intent.cancelled
        };
        let add = |count: &AtomicU64, by: u64| count.fetch_add(by, Ordering::Relaxed);
        add(&self.counts.refused, refused.into());
        add(&self.counts.refused_behaving, world.intents.iter().any(behaving).into());
        add(&self.counts.compared, world.compared.into());
        self.counts.longest_ms.fetch_max(world.now_ms - START_MS, Ordering::Relaxed);
    }

    /// The states of a path, each with what happened on the way to it.
    pub fn replay(&self, actions: &[Action]) -> Vec<World> {
        let mut states = vec![World { told: Some(Vec::new()), ..self.first() }];
        for &action in actions {
            let Some(last) = states.last() else { break };
            let mut next = World { told: Some(Vec::new()), ..last.clone() };
            next.apply(self, action);
            states.push(next);
        }
        states
    }
}

/// The messages of an intent: as many as its client may send, and two for the last question.
fn messages(config: &Config, intent: usize) -> Vec<Message> {
    let spec = &config.intents[intent];
    let posts = u32::from(spec.posts_max) + 2;
    let parsed = (0..posts).map(|post| {
        let is_repeat = post < u32::from(spec.posts_max);
        let fresh = if spec.resends && is_repeat { 0 } else { post };
        let id = 10 * (intent as u32 + 1) + fresh;
        let arguments = spec.arguments;
        let text = match spec.effect {
            Effect::Ungated => {
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tasks/get","params":{{}}}}"#)
            }
            effect => {
                let tool = if effect == Effect::Idempotent { IDEMPOTENT_TOOL } else { "charge" };
                let call = format!(r#""name":"{tool}","arguments":{{"n":{arguments}}}"#);
                let meta = format!(r#""_meta":{{"progressToken":{id}}}"#);
                let params = format!(r#""params":{{{call},{meta}}}"#);
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call",{params}}}"#)
            }
        };
        parse(&text)
    });
    parsed.flatten().collect()
}

/// Parses one message.
pub fn parse(text: &str) -> Option<Message> {
    match message::parse(Bytes::copy_from_slice(text.as_bytes()), 64) {
        Ok(Incoming::One(message)) => Some(message),
        _ => None,
    }
}

macro_rules! always {
    ($property:ident) => {
        stateright::Property::always(Property::$property.name(), |model: &Model, world: &World| {
            model.holds(Property::$property, world)
        })
    };
}

impl stateright::Model for Model {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.first()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        action::possible(self, world, actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut next = last.clone();
        next.apply(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        debug_assert_eq!(ALL.len(), 12);
        vec![
            // Always holds, so that the checker does not stop when all others are violated.
            stateright::Property::always("counted", |model: &Self, world: &World| {
                model.count(world);
                true
            }),
            stateright::Property::always(
                Property::Settles.name(),
                |model: &Self, world: &World| {
                    let mut actions = Vec::new();
                    action::possible(model, world, &mut actions);
                    if !actions.is_empty() || world.broken != 0 {
                        return true;
                    }
                    model.counts.ends.fetch_add(1, Ordering::Relaxed);
                    world.settles(model) || !model.is_first(Property::Settles)
                },
            ),
            always!(Invariant),
            always!(Executions),
            always!(Reach),
            always!(Order),
            always!(Overtaken),
            always!(Foreign),
            always!(HeldBound),
            always!(Agreement),
            always!(StateLossTold),
            always!(NeverGated),
            always!(Refusal),
        ]
    }
}

impl Model {
    fn is_first(&self, property: Property) -> bool {
        let bit = u64::from(property.bit());
        self.found.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}
