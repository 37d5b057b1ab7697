//! Progress, where servers replay on one stream the events of all (against spec RES-6).

use serde_json::{Value, json};

use crate::support::{Kind, World};

/// What the host was told of a call's progress since it was asked last.
fn told(world: &mut World, call: u64) -> Vec<u64> {
    let delivered = std::mem::take(&mut world.delivered);
    let is_of = |message: &&Value| message["params"]["progressToken"] == call;
    let progress = delivered.iter().filter(is_of);
    progress.filter_map(|message| message["params"]["progress"].as_u64()).collect()
}

#[test]
fn what_the_stream_of_another_call_brings_is_left_to_the_calls_own() {
    let mut world = World::opened(Kind::Plain);
    let first = world.reading(1, "charge", "a1");
    let second = world.reading(2, "charge", "b1");
    world.cut(second.exchange);
    world.pass(1);
    let get = world.get_after("b1");
    world.stream(get);
    for number in 2..=6 {
        world.event(get, &format!("a{number}"), &first.progress(number));
    }
    for number in 2..=9 {
        world.event(first.exchange, &format!("a{number}"), &first.progress(number));
    }
    world.event(get, "b2", &second.progress(2));
    assert_eq!(told(&mut world, 1), (2..=9).collect::<Vec<_>>());
    // Its result is its result, whatever that came on.
    world.event(get, "a10", &first.result("done"));
    assert_eq!(world.delivered()["result"]["text"], "done");
}

#[test]
fn what_came_on_another_stream_comes_on_the_next_only_if_it_is_larger() {
    let (mut world, standalone) = World::listening();
    let post = world.reading(1, "charge", "e1");
    world.event(standalone, "s1", &post.progress(2));
    world.event(standalone, "s2", &post.progress(5));
    for number in 2..=7 {
        world.event(post.exchange, &format!("e{number}"), &post.progress(number));
    }
    world.event(standalone, "s3", &post.progress(6));
    assert_eq!(told(&mut world, 1), [2, 5, 6, 7]);
}

#[test]
fn what_does_not_increase_on_the_calls_own_stream_is_the_servers_to_say() {
    let mut world = World::opened(Kind::Plain);
    let post = world.reading(1, "charge", "e1");
    let numbers = [5, 5, 0, 1];
    for (at, number) in numbers.into_iter().enumerate() {
        world.event(post.exchange, &format!("f{at}"), &post.progress(number));
    }
    let mut odd = post.progress(0);
    odd["params"]["progress"] = json!("half");
    world.event(post.exchange, "f9", &odd);
    let messages = world.delivered.len();
    assert_eq!((told(&mut world, 1), messages), (numbers.to_vec(), 5));
}
