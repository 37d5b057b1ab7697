//! The tests of the rule through its public face, as one program: it is linked once, not once a file.

mod message;
mod message_edit;
mod message_properties;
mod observed_cases;
mod policy_rows;
mod properties;
mod regressions;
mod regressions_2;
mod session_batch;
mod session_continued;
mod session_evidence;
mod session_get;
mod session_holds;
mod session_quota;
mod session_records;
mod session_retention;
mod session_room;
mod session_scope;
mod session_settings;
mod session_tokens;
mod session_upstream;
mod sse;
mod support;
