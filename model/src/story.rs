//! A path of the checker as a story: who does what, and what the session makes of it.

use std::fmt::Write;

use crate::action::Action;
use crate::model::Model;
use crate::world::World;

/// Tells a path.
pub fn tell(model: &Model, actions: &[Action]) -> String {
    let states = model.replay(actions);
    let mut text = String::new();
    for (at, action) in actions.iter().enumerate() {
        let (before, after) = (&states[at], &states[at + 1]);
        let _ = writeln!(text, "{:>3}. {}", at + 1, line(model, before, *action));
        for told in after.told.iter().flatten() {
            let _ = writeln!(text, "       {}", told.trim_end());
        }
    }
    text
}

fn line(model: &Model, world: &World, action: Action) -> String {
    let of = |at: usize| {
        let exchange = &world.exchanges[at];
        let what = if exchange.post.is_some() { "POST" } else { "GET" };
        let name = model.name(usize::from(exchange.intent));
        format!("connection {} ({what} of {name})", at + 1)
    };
    let next = world.exchanges.len() + 1;
    let call = |run: usize| world.runs[run].call;
    match action {
        Action::Post(intent) => {
            let (name, post) = (model.name(intent), world.intents[intent].posts);
            let again = if post == 0 { "posts" } else { "posts again" };
            format!("The client {again} {name}, on connection {next}.")
        }
        Action::Get(intent) => {
            let cursor = world.intents[intent].cursor.map_or(0, |(_, seq)| seq.0);
            let name = model.name(intent);
            format!("The client resumes {name} by GET after event {cursor}, on connection {next}.")
        }
        Action::Acknowledge(intent) => {
            format!("The client acknowledges what it has read of {}.", model.name(intent))
        }
        Action::Cancel(intent) => {
            format!("The client cancels {} and closes its connection.", model.name(intent))
        }
        Action::Close(at) => format!("The client closes {} without an answer.", of(at)),
        Action::Leave(at) => {
            format!("The client closes {}; its HTTP library keeps what it had taken.", of(at))
        }
        Action::Read(at) => format!("The client's code reads {}.", of(at)),
        Action::Fin(at) => format!("The client, having read all, closes {}.", of(at)),
        Action::Write(at) => format!("The gateway writes to {}.", of(at)),
        Action::Arrive(at) => {
            let exchange = &world.exchanges[at];
            let proxy = model.config.network == crate::config::Network::Proxy;
            match (exchange.client_is_there || proxy, proxy) {
                (false, _) => format!("What was written to {} meets a closed port.", of(at)),
                (_, true) => format!("The proxy acknowledges what was written to {}.", of(at)),
                _ => format!("The client's kernel has what was written to {}.", of(at)),
            }
        }
        Action::Cut(at) => format!("The path of {} dies without a word.", of(at)),
        Action::Closed(at) => {
            let how = match world.exchanges[at].closing {
                crate::exchange::Closing::Reset => "reset",
                _ => "FIN",
            };
            format!("The client's {how} of {} comes to the gateway.", of(at))
        }
        Action::GiveUp(at) => format!("The gateway's kernel gives {} up.", of(at)),
        Action::Reset(at) => format!("{} is reset, though it was read.", of(at)),
        Action::Start(run) => format!("Call {} comes to the server.", call(run)),
        Action::Produce(run) => format!("The server reports progress of call {}.", call(run)),
        Action::Answer(run) => format!("The server answers call {}.", call(run)),
        Action::Stop(run) => format!("The server stops call {} without an answer.", call(run)),
        Action::Die => "The server dies.".to_owned(),
        Action::Crash => "The gateway is killed, and started again with its store.".to_owned(),
        Action::PowerCut => "The power is cut; the gateway is started again.".to_owned(),
        Action::Wipe => "The gateway is started again with an empty store.".to_owned(),
        Action::Review => "The session looks at what waits.".to_owned(),
        Action::Pass => "Time passes to the next moment that matters.".to_owned(),
    }
}
