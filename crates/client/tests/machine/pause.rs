//! A process that was stopped, or whose computer slept: hours pass, and nobody runs the machine.

use rejoin_client::machine::{Answer, Input};
use serde_json::json;

use crate::support::{Kind, World, limits};

const HOURS_MS: u64 = 8 * 60 * 60_000;

/// Nobody runs the machine for hours, whatever it waits for.
fn sleep(world: &mut World) {
    world.now_ms += HOURS_MS;
}

#[test]
fn a_call_that_runs_goes_on_after_a_sleep_and_the_next_one_leaves() {
    for kind in [Kind::Rejoin(1), Kind::Plain] {
        let mut world = World::opened(kind);
        let post = world.reading(1, "charge", "1-1-1");
        sleep(&mut world);
        world.input(Input::Tick);
        world.nothing_delivered();
        // Its connection died in silence: of a Rejoin that is seen by what does not come, of
        // another by what the kernel says.
        if kind == Kind::Plain {
            world.cut(post.exchange);
        }
        world.pass_until_opened(1_000);
        let get = world.get_after("1-1-1");
        world.stream(get);
        world.event(get, "1-1-2", &post.progress(2));
        world.event(get, "1-1-3", &post.result("done"));
        assert_eq!(world.delivered()["params"]["progress"], 2, "{kind:?}");
        assert_eq!(world.delivered()["result"]["text"], "done", "{kind:?}");
        world.pass(limits().replay_max_ms);
        let next = world.posted(2, "charge");
        world.json(next.exchange, 200, &next.result("next"));
        assert_eq!(world.delivered()["result"]["text"], "next", "{kind:?}");
        world.nothing_opened();
    }
}

#[test]
fn an_answer_that_came_while_nobody_looked_is_taken() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.stream(post.exchange);
    sleep(&mut world);
    world.sse(post.exchange, &format!("data: {}\n\n", post.result("done")));
    assert_eq!(world.delivered()["result"]["text"], "done");
    world.nothing_delivered();
}

#[test]
fn a_network_that_is_not_there_yet_after_a_sleep_is_waited_for() {
    let mut world = World::opened(Kind::Plain);
    let post = world.posted(1, "charge");
    world.answer(post.exchange, Answer::Unsent("unreachable".to_owned()));
    sleep(&mut world);
    world.input(Input::Tick);
    for _ in 0..3 {
        let again = world.post();
        world.answer(again.exchange, Answer::Unsent("unreachable".to_owned()));
        world.nothing_delivered();
        world.pass_until_opened(20_000);
    }
    let again = world.post();
    world.json(again.exchange, 200, &again.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
}

#[test]
fn a_session_that_was_lost_meanwhile_is_opened_anew() {
    let mut world = World::opened(Kind::Plain);
    world.host(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let list = world.post();
    world.json(list.exchange, 200, &list.result("tools"));
    world.delivered();
    sleep(&mut world);
    world.host(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }));
    let list = world.post();
    crate::support::gone(&mut world, &list);
    crate::support::reopen(&mut world, Kind::Plain);
    world.refuse_standalone();
    let list = world.post();
    world.json(list.exchange, 200, &list.result("again"));
    world.delivered();
    assert_eq!(world.delivered()["result"]["text"], "again");
}

/// Only what nobody could see does not count: a server that stays away is given up.
#[test]
fn time_in_which_the_machine_runs_counts_as_ever() {
    let mut world = World::opened(Kind::Plain);
    sleep(&mut world);
    world.posted(1, "charge");
    world.pass(limits().call_silence_max_ms - 1);
    world.nothing_delivered();
    world.pass(1);
    assert!(world.failed(1));
}
