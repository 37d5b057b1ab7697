//! See `rejoin_fuzz::event_id`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::event_id::run(data));
