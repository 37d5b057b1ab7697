//! `authorize_post_migration`, the rule in its plainest form, against `policy::decide` (design
//! section 1): where the plain function rejects the one stream that a POST repeats, the decision
//! never executes; where it accepts, it executes or answers from the record.

use rejoin_core::id::{EventId, Seq, SessionId, StreamId};
use rejoin_core::ledger::Phase;
use rejoin_core::migration::{SessionStreamState, authorize_post_migration};
use rejoin_core::policy::{Ablation, Original, Place, TokenFact, Verdict};
use rejoin_core::session::Judgement;
use rejoin_core::settings::Delivery;
use rejoin_core::stream::{Release, StreamState};

use crate::property::Property;
use crate::world::World;

/// Compares all that the last input made the session judge.
pub fn compare(world: &mut World) {
    if world.session.start().settings.ablation != Ablation::Nothing {
        return;
    }
    let verdicts = world.session.judgements().iter().filter_map(|judgement| {
        let [original] = &judgement.originals[..] else { return None };
        let accepted = plain_rule(world, judgement, original)?;
        Some(agrees(judgement, original, accepted))
    });
    let verdicts: Vec<bool> = verdicts.collect();
    world.compared += verdicts.len() as u32;
    if verdicts.contains(&false) {
        world.break_property(Property::Agreement);
    }
}

fn agrees(judgement: &Judgement, original: &Original, accepted: bool) -> bool {
    let verdict = &judgement.decision.verdict;
    let runs = matches!(verdict, Verdict::Claim { .. });
    if !accepted {
        return !runs;
    }
    let answers = matches!(verdict, Verdict::Record(_) | Verdict::Collect(_));
    // A re-send of what still runs neither runs nor is answered: it carries on.
    let carries_on = matches!(verdict, Verdict::Attach(_));
    let late = original.phase.is_in_flight() && matches!(verdict, Verdict::Reject(_));
    runs || answers || judgement.request.repeatable && (carries_on || late)
}

/// What the plain rule says; `None` where it does not apply.
fn plain_rule(world: &World, judgement: &Judgement, original: &Original) -> Option<bool> {
    let (request, session, o) = (&judgement.request, &judgement.session, original);
    let Place::Stream(state) = o.place else { return None };
    let is_lost = matches!(o.phase, Phase::Cancelled { .. } | Phase::Unknown);
    let presumed_is_doubtful = session.delivery == Delivery::Proved;
    let dropped = state.is_unsettled() || presumed_is_doubtful && state == StreamState::Presumed;
    let released = matches!(state, StreamState::Released(why) if why != Release::Cancelled);
    let by_params =
        request.token == TokenFact::Absent && o.same_params && o.in_repeat_window && !released;
    // Twins are no repeats, and a delivered tokenless call cannot be recognised as one; a reused
    // token and a tombstone are refused before any stream is looked at; a hold is judged later, and
    // so is what a lost server makes of the call.
    let is_repeat = o.by_token && o.same_params || by_params && (is_lost || dropped);
    let exempt = request.ungated
        || request.token == TokenFact::Forgotten
        || request.repeatable && state.is_attached() && !is_lost
        || session.replay
        || matches!(judgement.decision.row, 16 | 17);
    if !is_repeat || exempt {
        return None;
    }
    let call = world.session.call(o.call?)?;
    let stream = world.session.streams().find(|stream| Some(stream.id) == call.stream)?;
    let superseded = matches!(&judgement.decision.verdict,
        Verdict::Claim { supersede } if supersede.contains(&call.id))
        || request.repeatable && (dropped || is_lost);
    let drained = superseded
        || state.is_released()
        || state == StreamState::Proved
        || state == StreamState::Presumed && !presumed_is_doubtful;
    let produced = stream.last.unwrap_or(stream.cursors.produced);
    let delivered = if drained { produced } else { stream.cursors.acked };
    let in_flight = o.phase.may_produce() && !superseded;
    let plain = SessionStreamState {
        session_id: SessionId::new("session"),
        last_delivered_event_id: event(stream.id, delivered),
        last_produced_event_id: event(stream.id, produced),
        in_flight_requests: in_flight.then(|| "1".to_owned()).into_iter().collect(),
    };
    let token = o.by_token.then_some("token");
    Some(authorize_post_migration(&plain, "2", request.repeatable, token, true).is_ok())
}

fn event(stream: StreamId, seq: Seq) -> Option<EventId> {
    Some(EventId { epoch: rejoin_core::id::Epoch(1), stream, seq })
}
