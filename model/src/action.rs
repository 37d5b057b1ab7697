//! What can happen next.

use crate::config::Network;
use crate::exchange::{Closing, Exchange, Place, Standing};
use crate::model::Model;
use crate::world::{RunState, World};

/// Deadlines that may pass while something is on its way, but for a direct path.
const DELAYS_MAX: u8 = 1;

/// One thing that happens. Numbers are places in the lists of [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client posts an intent, or posts it again.
    Post(usize),
    /// It resumes the stream of an intent by GET.
    Get(usize),
    /// It acknowledges what it has read of an intent.
    Acknowledge(usize),
    /// It cancels an intent and closes its exchange.
    Cancel(usize),
    /// It closes an exchange without having its answer.
    Close(usize),
    /// It closes, and what its HTTP library had taken from the kernel is never read.
    Leave(usize),
    /// Its code reads what is in its kernel.
    Read(usize),
    /// Having read all, it closes its side.
    Fin(usize),
    /// The gateway's body writes what is in the log.
    Write(usize),
    /// What was written comes to the peer's kernel.
    Arrive(usize),
    /// The path dies without a word.
    Cut(usize),
    /// The client's FIN or reset comes to the gateway.
    Closed(usize),
    /// The gateway's kernel gives a dead connection up.
    GiveUp(usize),
    /// The connection is reset though its answer was read.
    Reset(usize),
    /// A call comes to the server.
    Start(usize),
    /// The server reports progress.
    Produce(usize),
    /// The server answers.
    Answer(usize),
    /// The server stops a cancelled call without an answer.
    Stop(usize),
    /// The server dies.
    Die,
    /// The gateway is killed, and started again with its store.
    Crash,
    /// The power is cut, and the gateway started again with what was synced.
    PowerCut,
    /// The gateway is started again with an empty store.
    Wipe,
    /// The session looks at what waits.
    Review,
    /// Time passes to the next deadline.
    Pass,
}

/// All that can happen next, in a fixed order.
pub fn possible(model: &Model, world: &World, actions: &mut Vec<Action>) {
    if world.broken != 0 {
        return;
    }
    for intent in 0..world.intents.len() {
        of_intent(model, world, intent, actions);
    }
    for at in 0..world.exchanges.len() {
        of_client(model, world, at, actions);
        of_network(model, world, at, actions);
    }
    of_server(model, world, actions);
    let (faults, spent) = (&model.config.faults, &world.spent);
    if spent.crashes < faults.crashes {
        actions.push(Action::Crash);
    }
    if spent.power_cuts < faults.power_cuts {
        actions.push(Action::PowerCut);
    }
    if spent.wipes < faults.wipes {
        actions.push(Action::Wipe);
    }
    if world.has_review() {
        return actions.push(Action::Review);
    }
    let next = world.next_moment(model);
    if spent.passes < faults.passes && next.is_some_and(|at| may_pass(model, world, at)) {
        actions.push(Action::Pass);
    }
}

fn of_intent(model: &Model, world: &World, intent: usize, actions: &mut Vec<Action>) {
    let (spec, progress) = (&model.config.intents[intent], &world.intents[intent]);
    if spec.acks && progress.cursor.is_some() && progress.acked != progress.cursor {
        actions.push(Action::Acknowledge(intent));
    }
    if progress.answer.is_some() {
        return;
    }
    let own = world.exchanges.iter().filter(|e| usize::from(e.intent) == intent && e.is_open());
    let waits = own.clone().next().is_some();
    // While its transport resumes, the caller may ask again.
    let posted = own.clone().any(|exchange| exchange.post.is_some());
    let may_begin = !spec.after_previous
        || intent.checked_sub(1).is_none_or(|at| world.intents[at].answer.is_some());
    // A tokenless call is known for so long; what comes later is documented to be a new one.
    let window_ms = model.settings.limits.repeat_window_ms;
    let in_time = spec.token.is_some()
        || progress.touched_ms.is_none_or(|at_ms| world.now_ms < at_ms + window_ms);
    if !posted && may_begin && in_time && progress.posts < spec.posts_max {
        actions.push(Action::Post(intent));
    }
    if !waits && progress.gets < spec.gets_max && progress.cursor.is_some() {
        actions.push(Action::Get(intent));
    }
    if waits && spec.cancels && !progress.cancelled {
        actions.push(Action::Cancel(intent));
    }
}

fn of_client(model: &Model, world: &World, at: usize, actions: &mut Vec<Action>) {
    let exchange = &world.exchanges[at];
    if !exchange.client_is_there {
        return;
    }
    let is_cut = !exchange.path_is_up;
    let readable = model.config.network != Network::Proxy || !is_cut;
    let ends = exchange.told_to_end && exchange.is_open();
    if readable && (exchange.has_unread() || ends) {
        actions.push(Action::Read(at));
    }
    let (faults, spent) = (&model.config.faults, &world.spent);
    let has_read = exchange.stream.is_some() && exchange.read > exchange.from;
    let may_close = has_read || !faults.after_reading;
    if exchange.is_open() && (is_cut || spent.closes < faults.closes) && may_close {
        actions.push(Action::Close(at));
        let buffers = model.config.network == Network::Any && !is_cut;
        if buffers && exchange.has_unread() {
            actions.push(Action::Leave(at));
        }
    }
    let is_idle = exchange.is_read && exchange.acknowledged_ms.is_some() && !exchange.is_over;
    if is_idle && exchange.path_is_up && spent.fins < faults.fins {
        actions.push(Action::Fin(at));
    }
    if is_idle && exchange.path_is_up && spent.resets < faults.resets {
        actions.push(Action::Reset(at));
    }
}

fn of_network(model: &Model, world: &World, at: usize, actions: &mut Vec<Action>) {
    let exchange = &world.exchanges[at];
    let network = model.config.network;
    if exchange.is_over {
        return;
    }
    if may_write(world, exchange) {
        actions.push(Action::Write(at));
    }
    let passes = exchange.path_is_up || network == Network::Proxy;
    if is_on_its_way(exchange) && passes && exchange.closing == Closing::None {
        actions.push(Action::Arrive(at));
    }
    if exchange.closing != Closing::None && exchange.path_is_up {
        actions.push(Action::Closed(at));
    }
    let matters = exchange.is_open() || exchange.closing != Closing::None;
    let behaves = !exchange.has_unread() && exchange.closing == Closing::None;
    if exchange.path_is_up
        && world.spent.cuts < model.config.faults.cuts
        && matters
        && (!network.is_direct() || behaves)
    {
        actions.push(Action::Cut(at));
    }
    let noticed = !exchange.path_is_up && network != Network::Proxy;
    let unsure = exchange.body_runs || exchange.final_handed && exchange.acknowledged_ms.is_none();
    if noticed && (unsure || exchange.standing == Standing::Waiting) {
        actions.push(Action::GiveUp(at));
    }
}

/// The body has something to write.
fn may_write(world: &World, exchange: &Exchange) -> bool {
    let Some(stream) = exchange.stream.filter(|_| exchange.body_runs) else { return false };
    exchange.head == Place::Nowhere
        || exchange.probe == Some(false)
        || world.produced(stream).0 > exchange.written
}

fn of_server(model: &Model, world: &World, actions: &mut Vec<Action>) {
    let faults = &model.config.faults;
    for (at, run) in world.runs.iter().enumerate() {
        match run.state {
            RunState::Coming => actions.push(Action::Start(at)),
            RunState::Running => {
                if run.progress < faults.progress && !run.cancelled {
                    actions.push(Action::Produce(at));
                }
                actions.push(Action::Answer(at));
                if run.cancelled {
                    actions.push(Action::Stop(at));
                }
            }
            RunState::Over => {}
        }
    }
    if world.spent.deaths < faults.deaths && !world.runs.is_empty() {
        actions.push(Action::Die);
    }
}

/// What the gateway itself does takes no time. On a direct path what is on its way arrives before
/// the next deadline, in whatever order, and a client reads or gives up while a reset would still
/// count.
fn may_pass(model: &Model, world: &World, until_ms: u64) -> bool {
    let mut open = world.exchanges.iter().filter(|exchange| !exchange.is_over);
    if open.any(|exchange| may_write(world, exchange)) {
        return false;
    }
    let network = model.config.network;
    let delays_max = if network == Network::Direct { 0 } else { DELAYS_MAX };
    if world.spent.delays >= delays_max && world.has_travellers(model) {
        return false;
    }
    let window_ms = model.settings.limits.reset_window_ms;
    let mut open = world.exchanges.iter().filter(|exchange| !exchange.is_over);
    !network.is_direct()
        || open.all(|exchange| {
            let closes = exchange.path_is_up && exchange.closing != Closing::None;
            let unread = exchange.client_is_there && exchange.has_unread();
            let late = exchange.acknowledged_ms.is_some_and(|at_ms| until_ms > at_ms + window_ms);
            !(closes || unread && late)
        })
}

impl World {
    /// Something is on its way, and will arrive.
    pub fn has_travellers(&self, model: &Model) -> bool {
        let proxy = model.config.network == Network::Proxy;
        self.exchanges.iter().filter(|exchange| !exchange.is_over).any(|exchange| {
            let passes = exchange.path_is_up || proxy;
            passes && (exchange.closing != Closing::None || is_on_its_way(exchange))
        })
    }
}

fn is_on_its_way(exchange: &Exchange) -> bool {
    exchange.written > exchange.kernel
        || exchange.head == Place::Written
        || exchange.probe == Some(true)
        || exchange.final_handed && exchange.acknowledged_ms.is_none()
}
