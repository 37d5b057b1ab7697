//! The hazards, one file each.

mod accept_status;
mod disconnect_cancels;
mod drop_before_first_event;
mod event_ids;
mod evicted_cursor;
mod foreign_event_id;
mod hand_over;
mod malformed_cursor;
mod notification_status;
mod origin;
mod overtaking;
mod priming;
mod refusal;
mod repeat_after_end;
mod repeat_new_id;
mod repeat_same_id;
mod repeat_same_id_after_end;
mod restart;
mod resume_after_end;
mod resume_delivered;
mod resume_fast;
mod resume_in_flight;
mod same_id_elsewhere;
mod session_id;
mod session_status;
mod stalled_reader;
mod two_resumes;
mod unknown_cursor;
mod version_status;
mod wrong_stream;

use crate::hazard::Hazard;

/// Those that say whether a call that is sent again runs twice.
pub(crate) const REPEATS: [&str; 5] = [
    "repeat-in-flight-same-id",
    "repeat-in-flight-new-id",
    "repeat-after-end-same-id",
    "repeat-after-end-unseen",
    "drop-before-first-event",
];

/// All of them, what costs most first.
pub(crate) fn all() -> Vec<Box<dyn Hazard>> {
    vec![
        Box::new(repeat_same_id::RepeatSameId),
        Box::new(repeat_new_id::RepeatNewId),
        Box::new(repeat_same_id_after_end::RepeatSameIdAfterEnd),
        Box::new(repeat_after_end::RepeatAfterEnd),
        Box::new(drop_before_first_event::DropBeforeFirstEvent),
        Box::new(resume_in_flight::ResumeInFlight),
        Box::new(resume_after_end::ResumeAfterEnd),
        Box::new(hand_over::HandOver),
        Box::new(resume_fast::ResumeFast),
        Box::new(evicted_cursor::EvictedCursor),
        Box::new(overtaking::Overtaking),
        Box::new(foreign_event_id::ForeignEventId),
        Box::new(same_id_elsewhere::SameIdElsewhere),
        Box::new(two_resumes::TwoResumes),
        Box::new(unknown_cursor::UnknownCursor),
        Box::new(malformed_cursor::MalformedCursor),
        Box::new(resume_delivered::ResumeDelivered),
        Box::new(disconnect_cancels::DisconnectCancels),
        Box::new(wrong_stream::WrongStream),
        Box::new(stalled_reader::StalledReader),
        Box::new(event_ids::EventIds),
        Box::new(priming::Priming),
        Box::new(session_status::SessionStatus),
        Box::new(version_status::VersionStatus),
        Box::new(accept_status::AcceptStatus),
        Box::new(notification_status::NotificationStatus),
        Box::new(origin::Origin),
        Box::new(session_id::SessionId),
        Box::new(refusal::Refusal),
        Box::new(restart::Restart),
    ]
}
