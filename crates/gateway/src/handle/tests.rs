use super::*;
use rejoin_core::id::{SessionId, digest};

#[test]
fn a_tag_of_the_digest_is_the_tag_of_the_id() {
    let id = SessionId::new("an-id");
    assert_eq!(SessionTag::new(&digest(b"an-id")).as_str(), id.tag());
}

#[test]
fn clones_of_the_id_generator_never_repeat_a_number() {
    let ids = ConnectionIds::default();
    let other = ids.clone();
    assert_ne!(ids.next(), other.next());
}
