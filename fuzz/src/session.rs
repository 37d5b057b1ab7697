//! Conversations of clients, wires and servers with one session (`crates/core/tests/all/support`):
//! the invariants hold after every input, and what was committed is what a restart finds.

use arbitrary::{Result, Unstructured};
use rejoin_core::settings::{Delivery, OnRepeat, RepeatScope};

use crate::support::conversation::{Op, PASSES_MS, ROOMS, run as play, settings};

/// Longer ones are no richer, and slow.
const OPS_MAX: usize = 40;

/// The input chooses settings, and then one thing after another that happens.
pub fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let chosen = (|| {
        let repeat = *input.choose(&[OnRepeat::Collect, OnRepeat::Join, OnRepeat::Reject])?;
        let delivery = *input.choose(&[Delivery::Presumed, Delivery::Proved])?;
        let scope = *input.choose(&[RepeatScope::Session, RepeatScope::Principal])?;
        let [strict, unobserved] = [input.ratio(1_u8, 5_u8)?, input.ratio(1_u8, 5_u8)?];
        Ok::<_, arbitrary::Error>((settings(repeat, delivery, scope, strict), !unobserved))
    })();
    let Ok((settings, observed)) = chosen else { return };
    let mut ops = Vec::new();
    while !input.is_empty() && ops.len() < OPS_MAX {
        let Ok(op) = op(&mut input) else { break };
        ops.push(op);
    }
    play(settings, observed, &ops);
}

fn op(input: &mut Unstructured<'_>) -> Result<Op> {
    let n = |input: &mut Unstructured<'_>| input.int_in_range(0..=5_u8);
    let back = |input: &mut Unstructured<'_>| input.int_in_range(0..=3_u8);
    let tool = |input: &mut Unstructured<'_>| input.int_in_range(0..=2_u8);
    Ok(match input.int_in_range(0..=27_u8)? {
        0..=2 => {
            let (tool, id) = (tool(input)?, input.int_in_range(1..=3)?);
            Op::Post { tool, id, token: input.int_in_range(0..=4)? }
        }
        3 => Op::Batch { first: tool(input)?, second: tool(input)? },
        4 => Op::Read { progress: input.arbitrary()? },
        5 => Op::Get { stream: n(input)?, back: back(input)? },
        6 => Op::Standalone,
        7 => Op::Acknowledge { stream: n(input)?, back: back(input)? },
        8..=10 => Op::Wire { connection: n(input)?, event: input.int_in_range(0..=9)? },
        11 => Op::Deliver { connection: n(input)? },
        12 => Op::Answer { call: n(input)?, error: input.ratio(1_u8, 10_u8)? },
        13 => Op::Answer { call: n(input)?, error: false },
        14 => Op::Progress { call: n(input)?, stands: input.arbitrary()? },
        15 => Op::Ask { call: n(input)? },
        16 => Op::Respond { number: n(input)? },
        17 => Op::Sent { call: n(input)? },
        18 => Op::NotSent { call: n(input)? },
        19 => Op::Lost { call: n(input)? },
        20 => Op::Closed,
        21 => Op::Reopened { continues: input.arbitrary()? },
        22 => Op::Cancel { id: input.int_in_range(1..=3)? },
        23 => Op::Elsewhere { tool: tool(input)?, outcome: input.int_in_range(0..=5)? },
        24 => Op::Room { bytes: *input.choose(&ROOMS)? },
        25 => Op::Restart,
        26 => match input.int_in_range(0..=11)? {
            0 => Op::Leave { post: n(input)? },
            what => Op::Stray { what: what - 1, number: input.arbitrary()? },
        },
        _ => Op::Pass { ms: *input.choose(&PASSES_MS)? },
    })
}
